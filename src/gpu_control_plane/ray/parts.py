"""What the controllers of Ray share: made once, and given to each of them."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Protocol

from gpu_control_plane.kube.client import EVERYTHING, Selection
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.signal import Signal
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.ray.child_writer import ChildWriter
from gpu_control_plane.ray.settings import Settings
from gpu_control_plane.ray.watched import Watched


class Holder(Protocol):
    """The active replica of another operator."""

    @property
    def namespace(self) -> str: ...
    @property
    def holder(self) -> str: ...


class OtherOperator(Protocol):
    """Whether KubeRay's operator is active."""

    changed: Signal

    def active(self) -> Holder | None: ...


class Pools(Protocol):
    """What is known of the resources of GPUPools."""

    def units(self, limits: Mapping[str, int | str]) -> int:
        """GPUs as Ray counts them, for one container."""

    def pools_of(self, limits: Mapping[str, int | str]) -> Mapping[str, int]:
        """Units by the name of the pool."""


class Answered[T](Protocol):
    """The latest answer of a dashboard: a value, or why there is none."""

    @property
    def value(self) -> T | None: ...
    @property
    def error(self) -> Exception | None: ...
    @property
    def at(self) -> datetime: ...


class Calls(Protocol):
    """Questions to dashboards, which are asked in the background."""

    signal: Signal

    def ask[T](
        self, key: Key, name: str, call: Callable[[], Awaitable[T]], *, every: float | None
    ) -> Answered[T] | None: ...

    def forget(self, key: Key) -> None: ...


class RayParts:
    """The process, the settings, and what every controller of Ray needs."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        *,
        lease: OtherOperator,
        gpus: Pools,
        calls: Calls,
        now: Callable[[], datetime] = utc_now,
        dashboard_at: Callable[[Key], str] | None = None,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.now = now
        self.writer = ChildWriter(runtime.client)
        self.lease = lease
        self.gpus = gpus
        self.calls = calls
        self.dashboard_at = dashboard_at
        """By the key of a RayCluster, the URL of its dashboard; None where the head's Service says so, as it does
        outside tests."""

    def caches[T: Object](self, kind: type[T], selection: Selection = EVERYTHING) -> Watched[T]:
        """The objects of a kind in all watched namespaces."""
        return Watched(self.runtime, kind, selection, self.settings.options.watch_namespaces)
