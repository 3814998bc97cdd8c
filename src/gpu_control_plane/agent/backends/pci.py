"""The backend of a node without a driver: it publishes the cards on the PCI bus before they can be used."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Never, override

from gpu_control_plane import __version__
from gpu_control_plane.agent.backends.interface import (
    Backend,
    CardLost,
    Details,
    DeviceFile,
    DriverUnavailable,
    Instance,
    Process,
    Readings,
    Signals,
)
from gpu_control_plane.agent.backends.pci_names import ProductNames
from gpu_control_plane.agent.backends.sysfs import PCIVendor, Sysfs
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.nodefeature import NodeFacts


class PCIBackend(Backend):
    """The `Backend` of a node without a working driver: the cards of these vendors. `reason` says why it has none."""

    def __init__(
        self,
        vendors: Sequence[PCIVendor],
        reason: str = "No driver was looked for.",
        *,
        sysfs: Sysfs | None = None,
        names: ProductNames | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.reason = reason
        self._vendors = vendors
        self._sysfs = sysfs or Sysfs()
        self._names = names or ProductNames(vendors)
        self._sleep = sleep

    def open(self) -> None:
        """There is no driver to open."""

    def close(self) -> None:
        """There is no driver to release."""

    def facts(self) -> NodeFacts:
        shown = self._sysfs.bus(self._vendors)
        return NodeFacts(
            bus_cards=len(shown or ()),
            bus=None if shown is None else tuple(card.pci for card in shown),
            boot_id=self._sysfs.boot_id(),
            agent_version=__version__,
        )

    def cards(self) -> tuple[Hardware, ...]:
        return tuple(
            Hardware(
                vendor=card.vendor,
                product=self._names.of(card.vendor, card.pci),
                pci=card.pci,
                numa_node=card.numa_node,
            )
            for card in self._sysfs.cards(self._vendors)
        )

    def details(self, address: str) -> Details:
        for index, card in enumerate(self._sysfs.cards(self._vendors)):
            if card.pci.address == address:
                return Details(index=index, pci_root=card.root)
        raise CardLost(f"There is no card at {address}.")

    def signals(self, address: str) -> Signals:
        return Signals(lost=self._sysfs.card(address, self._vendors) is None)

    def clear(self, address: str) -> None:
        """Without a driver there are no error codes."""

    def wait(self, seconds: float) -> frozenset[str]:
        self._sleep(seconds)
        return frozenset()

    @override
    def readings(self, address: str) -> Readings:
        return Readings()

    @override
    def samples(self, address: str, instance: Instance | None = None) -> Mapping[str, float]:
        return {}

    @override
    def processes(self, address: str) -> tuple[Process, ...]:
        return ()

    def control_files(self) -> tuple[DeviceFile, ...]:
        return ()

    @override
    def device_files(self, address: str) -> tuple[DeviceFile, ...]:
        return ()

    @override
    def instance_files(self, address: str, instance: Instance) -> tuple[DeviceFile, ...]:
        return ()

    @override
    def instances(self, address: str) -> tuple[Instance, ...]:
        return ()

    @override
    def set_mig_mode(self, address: str, *, enabled: bool) -> Never:
        self._refuse()

    @override
    def create_instance(self, address: str, profile: str, start: int) -> Never:
        self._refuse()

    @override
    def destroy_instance(self, address: str, instance: Instance) -> Never:
        self._refuse()

    def _refuse(self) -> Never:
        raise DriverUnavailable(f"Without a driver a card cannot be partitioned into MIG instances. {self.reason}")
