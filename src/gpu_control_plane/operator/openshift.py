"""Whether the cluster is OpenShift, and what of it the stack depends on: release, proxy, images of the Driver Toolkit.

Asked once, when the process starts: a cluster does not become OpenShift while it runs. Where it is, its objects are
followed, since a cluster upgrade brings another release and other images.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.kube import Cache, Object, Resource, Runtime, Selection
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.errors import Forbidden, KubeError, NotFound
from gpu_control_plane.operator.stack.render_input import OpenShift
from gpu_control_plane.operator.views import View

_AGAIN: Final = 1.0
_COMPLETED: Final = "Completed"


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


class _Followed(msgspec.Struct, frozen=True):
    """One object each, or none."""

    versions: Cache[ClusterVersion]
    proxies: Cache[Proxy]
    streams: Cache[ImageStream]


class OpenShiftWatch:
    """Finds out, and follows. `known` is set once it is certain whether this is OpenShift, and what its objects say:
    who rendered a driver before that would replace it a moment later."""

    def __init__(self, runtime: Runtime) -> None:
        self.known = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        self._client = runtime.unfenced_client
        self._versions = DynamicCaches(self._client, ClusterVersion)
        self._proxies = DynamicCaches(self._client, Proxy)
        self._streams = DynamicCaches(self._client, ImageStream)
        self._followed: _Followed | None = None
        for run in (self._versions.run, self._proxies.run, self._streams.run, self._find_out):
            runtime.service(run)

    def facts(self) -> OpenShift | None:
        """What is known of it; None where this is not OpenShift."""
        found = self._followed
        version = found.versions.get("version") if found is not None else None
        if found is None or version is None:
            return None
        return facts(version, found.proxies.get("cluster"), found.streams.get("driver-toolkit", "openshift"))

    async def _find_out(self) -> None:
        if await self._shows(ClusterVersion, "version"):
            self._followed = _Followed(
                versions=await self._follow(self._versions, ClusterVersion, "version"),
                proxies=await self._follow(self._proxies, Proxy, "cluster"),
                streams=await self._follow(self._streams, ImageStream, "driver-toolkit", "openshift"),
            )
        self.known.set()
        self.on_change()
        await asyncio.Event().wait()

    async def _follow[T: Object](
        self, followers: DynamicCaches[T], kind: type[T], name: str, namespace: str | None = None
    ) -> Cache[T]:
        """A cache of one object, which is in it if the cluster shows it at all. Who may read it, but not list it, does
        not wait for it."""
        selection = Selection(namespace=namespace, fields=f"metadata.name={name}")
        cache = followers.follow(name, selection, lambda _old, _new: self.on_change())
        if await self._shows(kind, name, namespace):
            await cache.answered()
        return cache

    async def _shows(self, kind: type[Object], name: str, namespace: str | None = None) -> bool:
        """Whether there is such an object, and we may read it: who may not is not meant to go by it."""
        while True:
            try:
                await self._client.get(kind, name, namespace)
            except (NotFound, Forbidden):
                return False
            except KubeError:
                await asyncio.sleep(_AGAIN)
            else:
                return True
