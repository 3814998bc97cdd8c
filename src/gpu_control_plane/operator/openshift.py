"""Whether the cluster is OpenShift, and what the stack needs to know of it: release, proxy, Driver Toolkit images.

Asked once, when the process starts: a cluster does not become OpenShift while it runs. On OpenShift, its objects are
watched, since a cluster upgrade brings another release and other images.
"""

import asyncio
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.kube import Cache, Object, Resource, Runtime, Selection, Signal
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.errors import Forbidden, KubeError, NotFound
from gpu_control_plane.operator.views import View

_RETRY_SECONDS: Final = 1.0
_COMPLETED: Final = "Completed"


class OpenShift(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the OpenShift cluster."""

    version: str = ""
    proxy: Mapping[str, str] = {}
    """HTTP_PROXY, HTTPS_PROXY and NO_PROXY, those that are set."""
    proxy_ca: bool = False
    """Whether the proxy has a certificate authority of its own."""
    toolkit_images: Mapping[str, str] = {}
    """Image of the Driver Toolkit for each version of Red Hat CoreOS."""


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


def openshift_of(version: ClusterVersion, proxy: Proxy | None, toolkit: ImageStream | None) -> OpenShift:
    """What its objects say together. The newest release whose installation is complete counts."""
    wanted = proxy.spec if proxy is not None else ProxySpec()
    named = {"HTTP_PROXY": wanted.http_proxy, "HTTPS_PROXY": wanted.https_proxy, "NO_PROXY": wanted.no_proxy}
    tags = toolkit.spec.tags if toolkit is not None else ()
    return OpenShift(
        version=next((update.version for update in version.status.history if update.state == _COMPLETED), ""),
        proxy={name: value for name, value in named.items() if value},
        proxy_ca=bool(wanted.trusted_ca.name),
        toolkit_images={tag.name: tag.source.name for tag in tags if tag.source.name},
    )


class _Caches(msgspec.Struct, frozen=True):
    """Each holds one object, or none."""

    versions: Cache[ClusterVersion]
    proxies: Cache[Proxy]
    streams: Cache[ImageStream]


class OpenShiftWatch:
    """Detects OpenShift, and watches its objects. `detected` is set once it is certain whether this is OpenShift, and
    its objects have been read: a driver rendered before that would be replaced a moment later. `changed` is fired then,
    and whenever one of the objects changes."""

    def __init__(self, runtime: Runtime) -> None:
        self.detected = asyncio.Event()
        self.changed = Signal("openshift")
        self._client = runtime.unfenced_client
        self._versions = DynamicCaches(self._client, ClusterVersion)
        self._proxies = DynamicCaches(self._client, Proxy)
        self._streams = DynamicCaches(self._client, ImageStream)
        self._caches: _Caches | None = None
        for run in (self._versions.run, self._proxies.run, self._streams.run, self._detect):
            runtime.service(run)

    def current(self) -> OpenShift | None:
        """What is known of it; None where this is not OpenShift."""
        found = self._caches
        version = found.versions.get("version") if found is not None else None
        if found is None or version is None:
            return None
        return openshift_of(version, found.proxies.get("cluster"), found.streams.get("driver-toolkit", "openshift"))

    async def _detect(self) -> None:
        if await self._readable(ClusterVersion, "version"):
            self._caches = _Caches(
                versions=await self._follow(self._versions, ClusterVersion, "version"),
                proxies=await self._follow(self._proxies, Proxy, "cluster"),
                streams=await self._follow(self._streams, ImageStream, "driver-toolkit", "openshift"),
            )
        self.detected.set()
        self.changed.fire()
        await asyncio.Event().wait()

    async def _follow[T: Object](
        self, caches: DynamicCaches[T], kind: type[T], name: str, namespace: str | None = None
    ) -> Cache[T]:
        """A cache of one object, complete if the object can be read at all. A process that may not list it does not
        wait for it."""
        selection = Selection(namespace=namespace, fields=f"metadata.name={name}")
        cache = caches.follow(name, selection, lambda _old, _new: self.changed.fire())
        if await self._readable(kind, name, namespace):
            await cache.synced_or_unavailable()
        return cache

    async def _readable(self, kind: type[Object], name: str, namespace: str | None = None) -> bool:
        """Whether there is such an object, and this process may read it. One that it may not read does not count."""
        while True:
            try:
                await self._client.get(kind, name, namespace)
            except (NotFound, Forbidden):
                return False
            except KubeError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return True
