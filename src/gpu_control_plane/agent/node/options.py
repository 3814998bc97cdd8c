"""How the agent of a node is set up, and where things are on the machine."""

import enum
from pathlib import Path

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.runtime_record import STATE
from gpu_control_plane.agent.timings import HealthTimings
from gpu_control_plane.agent.units import ResourceName
from gpu_control_plane.api.gpunodestate import Injection


class Hardware(enum.StrEnum):
    """Which hardware the agent looks after."""

    REAL = "real"
    """The machine's cards through their driver; without one, what the PCI bus shows."""
    SIMULATED = "simulated"
    """The cards that an annotation of the Node describes."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may choose."""

    node: str
    namespace: str = DEFAULT_NAMESPACE
    """Where the node's report is published."""
    hardware: Hardware = Hardware.REAL
    injection: Injection = Injection.CDI
    unpooled: ResourceName | None = None
    """The resource under which cards in no pool are offered; None keeps them to ourselves."""
    conflicting_resources: tuple[str, ...] = ()
    """Resources under which another plugin would offer the same cards, beside those that their vendor knows."""
    labels: bool = False
    """Whether the Node gets the labels of NVIDIA's feature discovery."""
    exporter: bool = True
    """Whether readings of the cards are served; off where another exporter has them."""
    pod_names: bool = True
    """Whether these readings name the pods that have the cards."""
    validator: bool = True
    """Whether the node is checked; off where another validator does it, and leaves the same files."""
    extra_checks: frozenset[str] = frozenset()
    """Further checks of the vendor to make, such as `nvidia-fs`."""
    burn_in: bool = False
    """Whether a new card is tested before it may be pooled."""
    burn_in_seconds: float = 60.0
    health: HealthTimings = HealthTimings()
    kubelet: Path = Path("/var/lib/kubelet")
    cdi: Path = Path("/var/run/cdi")
    container_runtime: Path | None = None
    """The socket of the container runtime; None looks at the usual places."""
    runtime_state: Path = STATE
    """Where on the host it is remembered what was written into the container runtime's files."""
    runtime_problem: str | None = None
    """Why the container runtime could not be configured, if that was asked for."""
    host: Path = Path("/")
    """Where the host's file system is, for an agent that runs in a container."""
    driver_roots: tuple[Path, ...] = (Path("/"),)
    container_driver_roots: tuple[Path, ...] = ()
    """Where driver containers put their file system. Those that are elsewhere are recognised if they are searched."""
    validations: Path | None = None
    """Where checks that passed leave their files; None for the vendor's own place."""
    simulated_devices: Path = Path("/run/gpu-control-plane/devices")
    """Where simulated cards have their device files."""

    @property
    def driver_search(self) -> DriverSearch:
        return DriverSearch(
            host=HostPaths(self.host), driver_roots=self.driver_roots, container_roots=self.container_driver_roots
        )

    @property
    def device_plugins(self) -> Path:
        return self.kubelet / "device-plugins"

    @property
    def state(self) -> Path:
        """What the agent keeps on the node; the kubelet leaves folders beside its sockets alone."""
        return self.device_plugins / "gpu-control-plane"

    @property
    def pod_resources(self) -> str:
        return f"unix://{self.kubelet / 'pod-resources' / 'kubelet.sock'}"
