"""Whether the cluster is OpenShift, and what of it the stack depends on: release, proxy, images of the Driver Toolkit.

Asked once, when the process starts: a cluster does not become OpenShift while it runs. Where it is, its objects are
followed, since a cluster upgrade brings another release and other images.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.kube import Object, Resource, Runtime, Selection
from gpu_control_plane.kube.errors import Forbidden, KubeError, NotFound
from gpu_control_plane.kube.followers import Followers
from gpu_control_plane.operator.stack.stage import OpenShift

_AGAIN: Final = 1.0
_COMPLETED: Final = "Completed"


class View(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Base of every part."""


class Update(View, frozen=True, kw_only=True):
    state: str = ""
    version: str = ""


class ClusterVersionStatus(View, frozen=True, kw_only=True):
    history: tuple[Update, ...] = ()


class ClusterVersion(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "config.openshift.io", "v1", "ClusterVersion", "clusterversions", namespaced=False
    )

    status: ClusterVersionStatus = ClusterVersionStatus()


class TrustedCA(View, frozen=True, kw_only=True):
    name: str = ""


class ProxySpec(View, frozen=True, kw_only=True):
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    trusted_ca: TrustedCA = msgspec.field(name="trustedCA", default=TrustedCA())


class Proxy(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("config.openshift.io", "v1", "Proxy", "proxies", namespaced=False)

    spec: ProxySpec = ProxySpec()


class TagSource(View, frozen=True, kw_only=True):
    name: str = ""


class Tag(View, frozen=True, kw_only=True):
    name: str = ""
    source: TagSource = msgspec.field(name="from", default=TagSource())


class ImageStreamSpec(View, frozen=True, kw_only=True):
    tags: tuple[Tag, ...] = ()


class ImageStream(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("image.openshift.io", "v1", "ImageStream", "imagestreams")

    spec: ImageStreamSpec = ImageStreamSpec()


def facts(version: ClusterVersion, proxy: Proxy | None, toolkit: ImageStream | None) -> OpenShift:
    """What its objects say, put together. The newest release whose installation is complete counts."""
    wanted = proxy.spec if proxy is not None else ProxySpec()
    named = {"HTTP_PROXY": wanted.http_proxy, "HTTPS_PROXY": wanted.https_proxy, "NO_PROXY": wanted.no_proxy}
    tags = toolkit.spec.tags if toolkit is not None else ()
    return OpenShift(
        version=next((update.version for update in version.status.history if update.state == _COMPLETED), ""),
        proxy={name: value for name, value in named.items() if value},
        proxy_ca=bool(wanted.trusted_ca.name),
        toolkit_images={tag.name: tag.source.name for tag in tags if tag.source.name},
    )


class OpenShiftWatch:
    """Finds out, and follows. `known` is set once it is certain whether this is OpenShift."""

    def __init__(self, runtime: Runtime) -> None:
        self.known = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        self._client = runtime.unfenced_client
        self._caches: dict[type[Object], Any] = {}
        self._followers: dict[type[Object], Followers[Any]] = {
            kind: Followers(self._client, kind) for kind in (ClusterVersion, Proxy, ImageStream)
        }
        for follower in self._followers.values():
            runtime.service(follower.run)
        runtime.service(self._find_out)

    def facts(self) -> OpenShift | None:
        """What is known of it; None where this is not OpenShift."""
        if not self._caches:
            return None
        version = self._caches[ClusterVersion].get("version")
        if version is None:
            return None
        return facts(
            version,
            self._caches[Proxy].get("cluster"),
            self._caches[ImageStream].get("driver-toolkit", "openshift"),
        )

    async def _find_out(self) -> None:
        while True:
            try:
                await self._client.get(ClusterVersion, "version")
            except (NotFound, Forbidden):
                # Who may not read it is not meant to treat this as OpenShift.
                break
            except KubeError:
                await asyncio.sleep(_AGAIN)
                continue
            await self._follow()
            break
        self.known.set()
        await asyncio.Event().wait()

    async def _follow(self) -> None:
        selections: dict[type[Object], Selection] = {
            ClusterVersion: Selection(fields="metadata.name=version"),
            Proxy: Selection(fields="metadata.name=cluster"),
            ImageStream: Selection(namespace="openshift", fields="metadata.name=driver-toolkit"),
        }
        for kind, selection in selections.items():
            follower = self._followers[kind]
            self._caches[kind] = follower.follow(kind.__name__, selection, lambda _old, _new: self.on_change())
        await self._caches[ClusterVersion].synced()
