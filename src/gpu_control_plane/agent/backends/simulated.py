"""The simulated backend: the cards that a document describes, as a driver would report them."""

from typing import Final

from gpu_control_plane import __version__
from gpu_control_plane.agent.backends.hardware import Machine, boot_id, card_uuid
from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.agent.backends.profiles import PROFILES, Load, numa_node
from gpu_control_plane.api.gpudevice import PCI, Hardware, Vendor
from gpu_control_plane.api.gpunodestate import Driver, DriverSource, Injection, Monitoring, MonitoringSource, Toolkit
from gpu_control_plane.api.nodefeature import NodeFacts

_NVIDIA: Final = "10de"
_DRIVER: Final = Driver(version="580.159.04", cuda_version="13.0", source=DriverSource.HOST)
_TOOLKIT: Final = Toolkit(injection=Injection.CDI, runtime="containerd://2.4.2")


class SimulatedBackend:
    """The `Backend` of one simulated node. `busy` are the addresses of cards that a pod holds."""

    def __init__(self, node: str, machine: Machine, busy: frozenset[str] = frozenset()) -> None:
        self._node = node
        self._machine = machine
        self._busy = busy
        self._profile = PROFILES[machine.profile]

    def facts(self) -> NodeFacts:
        return NodeFacts(
            bus_cards=len(self._present()),
            boot_id=boot_id(self._node, self._machine),
            agent_version=__version__,
            driver=_DRIVER,
            toolkit=_TOOLKIT,
            monitoring=Monitoring(source=MonitoringSource.AGENT),
        )

    def cards(self) -> tuple[Hardware, ...]:
        return tuple(self._card(index, address) for index, address in self._present().items())

    def signals(self, address: str) -> Signals:
        done = self._machine.of(address)
        return Signals(xids=done.xids, lost=done.lost or done.pulled, uncorrected_ecc=done.ecc)

    def readings(self, address: str) -> Readings:
        done = self._machine.of(address)
        if done.lost or done.pulled:
            return Readings()
        load: Load = self._profile.busy if address in self._busy else self._profile.idle
        return Readings(
            temperature=load.temperature,
            power=load.power,
            utilisation=load.utilisation,
            memory_used=load.memory_used,
        )

    def _present(self) -> dict[int, str]:
        places = enumerate(self._machine.addresses)
        return {index: address for index, address in places if not self._machine.of(address).pulled}

    def _card(self, index: int, address: str) -> Hardware:
        profile = self._profile
        peers = (other for other in self._present().values() if other != address) if profile.nvlink else ()
        return Hardware(
            vendor=Vendor.NVIDIA,
            product=profile.product,
            uuid=card_uuid(self._node, address, self._machine.of(address).swapped),
            pci=PCI(vendor=_NVIDIA, device=profile.pci_device, class_=profile.pci_class, address=address),
            memory_mib=profile.memory_mib,
            compute_capability=profile.compute_capability,
            architecture=profile.architecture,
            numa_node=numa_node(index),
            nvlink_peers=tuple(peers),
            mig=profile.mig,
        )
