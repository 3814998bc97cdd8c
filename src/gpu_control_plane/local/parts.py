"""All that is kept running for a cluster, whatever it is: components of the control plane, and programs of nodes."""

from pathlib import Path
from typing import Protocol

from gpu_control_plane.local.cluster import Cluster
from gpu_control_plane.local.components import HEALTH, Component, Health
from gpu_control_plane.local.ports import LOOPBACK


class Part(Protocol):
    """One process, as far as its supervisor is concerned."""

    name: str
    version: str
    log: Path
    health: Health | None

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def exit_code(self) -> int | None: ...

    def healthy(self) -> bool: ...

    def launch(self) -> None: ...


class ComponentPart:
    """A component of the control plane."""

    def __init__(self, cluster: Cluster, component: Component, version: str) -> None:
        self.name = str(component)
        self.version = version
        self.log = cluster.log(component)
        self.health: Health | None = HEALTH[component]
        self._cluster = cluster
        self._component = component

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._cluster.plan.ports.of(self._component)}"

    @property
    def pid(self) -> int | None:
        return self._cluster.pid(self._component)

    @property
    def exit_code(self) -> int | None:
        return self._cluster.exit_code(self._component)

    def healthy(self) -> bool:
        return self._cluster.healthy(self._component)

    def launch(self) -> None:
        self._cluster.launch(self._component)
