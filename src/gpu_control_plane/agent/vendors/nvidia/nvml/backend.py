"""The backend of real NVIDIA cards: the parts of this package behind the one interface."""

import threading
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from types import ModuleType

import msgspec
import pynvml  # type: ignore[import-untyped]

from gpu_control_plane import __version__
from gpu_control_plane.agent.backends.interface import (
    Backend,
    BackendError,
    CardLost,
    Details,
    DeviceFile,
    DriverUnavailable,
    Instance,
    Process,
    Readings,
    Recovery,
    Signals,
)
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.backends.sysfs import Sysfs
from gpu_control_plane.agent.vendors.nvidia.nvml import mig
from gpu_control_plane.agent.vendors.nvidia.nvml.device_files import DeviceFiles
from gpu_control_plane.agent.vendors.nvidia.nvml.events import Events
from gpu_control_plane.agent.vendors.nvidia.nvml.inventory import Card, read_cards
from gpu_control_plane.agent.vendors.nvidia.nvml.library import CardStuck, Library
from gpu_control_plane.agent.vendors.nvidia.nvml.measurements import (
    card_samples,
    instance_samples,
    pcie_throughput,
    readings,
)
from gpu_control_plane.agent.vendors.nvidia.nvml.processes import processes
from gpu_control_plane.agent.vendors.nvidia.nvml.profiling import Profiling
from gpu_control_plane.agent.vendors.nvidia.nvml.signals import ThermalSlowdown, probe
from gpu_control_plane.agent.vendors.nvidia.pci import PCI_VENDOR
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import Driver, DriverSource, Monitoring, MonitoringSource, Toolkit
from gpu_control_plane.api.nodefeature import NodeFacts


class NVMLBackend(Backend):
    """The `Backend` of a node with NVIDIA's driver.

    `library` is the path of libnvidia-ml.so.1; without it the loader searches for it. `source` says whose driver that
    is, if that is known. `dev` holds the device files, `toolkit` says how containers on this node get cards, if so.
    """

    def __init__(
        self,
        library: Path | None = None,
        *,
        source: DriverSource | None = None,
        sysfs: Sysfs | None = None,
        dev: Path = Path("/dev"),
        proc: Path = Path("/proc"),
        toolkit: Toolkit | None = None,
        nvml: ModuleType = pynvml,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sysfs = sysfs or Sysfs()
        self.source = source
        self._toolkit = toolkit
        self._now = now
        self._library = Library(library, nvml)
        self._files = DeviceFiles(self._sysfs, dev, proc)
        self._events = Events(self._library, sleep=sleep, clock=clock)
        self._profiling = Profiling(self._library)
        self._slowdown = ThermalSlowdown(clock)
        self._cards: dict[str, Card] = {}
        self._lock = threading.RLock()
        """Held while the driver is opened, closed or enumerated."""

    def open(self) -> None:
        with self._lock:
            if self._library.is_open:
                return
            self._library.open()
            try:
                self._enumerate()
            except BackendError:
                self.close()
                raise

    def close(self) -> None:
        with self._lock:
            if self._library.is_open:
                self._events.stop()
                self._profiling.stop()
                self._cards = {}
                self._library.close()

    def facts(self) -> NodeFacts:
        version: int | None = self._library.ask("nvmlSystemGetCudaDriverVersion")
        shown = self._sysfs.bus((PCI_VENDOR,))
        # Where the agent cannot see the bus, only the driver reports cards. An empty bus with cards is hidden, too.
        hidden = shown is None or (not shown and bool(self._cards))
        return NodeFacts(
            bus_cards=max(len(shown or ()), len(self._cards)),
            bus=None if hidden else tuple(card.pci for card in shown or ()),
            boot_id=self._sysfs.boot_id(),
            agent_version=__version__,
            driver=Driver(
                version=self._library.call("nvmlSystemGetDriverVersion"),
                cuda_version=f"{version // 1000}.{version % 1000 // 10}" if version else None,
                source=self.source,
            ),
            toolkit=self._toolkit,
            monitoring=Monitoring(source=MonitoringSource.AGENT),
        )

    def cards(self) -> tuple[Hardware, ...]:
        with self._lock:
            self._enumerate()
            return tuple(card.hardware for card in self._cards.values())

    def details(self, address: str) -> Details:
        return self._card(address).details

    def signals(self, address: str) -> Signals:
        reported = Signals(xids=self._events.reports(address), clears=self._events.clears(address))
        try:
            return probe(self._library, self._card(address).handle, address, self._slowdown, reported)
        except CardStuck:
            return msgspec.structs.replace(reported, recovery=Recovery.RESET)
        except CardLost:
            return msgspec.structs.replace(reported, lost=True)

    def clear(self, address: str) -> None:
        self._events.forget(address)

    def wait(self, seconds: float) -> frozenset[str]:
        return self._events.wait(seconds, self._cards)

    def readings(self, address: str) -> Readings:
        try:
            return readings(self._library, self._card(address).handle)
        except CardLost:
            return Readings()

    def samples(self, address: str, instance: Instance | None = None) -> Mapping[str, float]:
        try:
            card = self._card(address)
            return self._card_samples(card) if instance is None else self._instance_samples(card, instance)
        except CardLost:
            return {}

    def processes(self, address: str) -> tuple[Process, ...]:
        try:
            handle = self._card(address).handle
            return processes(self._library, handle, mig.instances(self._library, handle), self._now())
        except CardLost:
            return ()

    def control_files(self) -> tuple[DeviceFile, ...]:
        return self._files.control()

    def device_files(self, address: str) -> tuple[DeviceFile, ...]:
        return self._files.card(address, self._card(address).details.minor)

    def instance_files(self, address: str, instance: Instance) -> tuple[DeviceFile, ...]:
        return self._files.instance(self._card(address).details.minor, instance)

    def instances(self, address: str) -> tuple[Instance, ...]:
        return mig.instances(self._library, self._card(address).handle)

    def set_mig_mode(self, address: str, *, enabled: bool) -> None:
        """No program may have the card open meanwhile, including this one: its events and samples are freed first."""
        with self._lock:
            card = self._card(address)
            self._events.stop()
            self._profiling.stop()
            try:
                mig.set_mode(self._library, card.handle, enabled=enabled)
            finally:
                self._cards = read_cards(self._library, self._sysfs)
                self._events.watch(self._cards)

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        return mig.create(self._library, self._card(address).handle, profile, start)

    def destroy_instance(self, address: str, instance: Instance) -> None:
        mig.destroy(self._library, self._card(address).handle, instance)

    def _card(self, address: str) -> Card:
        if not self._library.is_open:
            raise DriverUnavailable("The driver has been released.")
        if address not in self._cards:
            raise CardLost(f"The driver knows no card at {address}.")
        return self._cards[address]

    def _enumerate(self) -> None:
        """Enumerate the cards again, and register for events of new ones. A card that no longer answers stays listed
        while the bus shows it, or cannot be read."""
        before, found = self._cards, read_cards(self._library, self._sysfs)
        self._cards = dict(sorted({**self._lost(before.keys() - found.keys()), **found}.items()))
        if before.keys() != self._cards.keys():
            self._events.watch(self._cards)

    def _lost(self, unanswered: Set[str]) -> dict[str, Card]:
        """Those of our cards that the driver no longer shows, without the ones that were removed."""
        shown = self._sysfs.bus((PCI_VENDOR,)) if unanswered else ()
        there = unanswered if shown is None else unanswered & {card.pci.address for card in shown}
        return {address: self._cards[address] for address in there}

    def _card_samples(self, card: Card) -> Mapping[str, float]:
        reports = self._events.reports(card.address)
        return {
            **card_samples(self._library, card.handle),
            **(self._profiling.measure(card.address, card.handle) or pcie_throughput(self._library, card.handle)),
            Measure.XID_ERRORS: float(reports[-1] if reports else 0),
        }

    def _instance_samples(self, card: Card, instance: Instance) -> Mapping[str, float]:
        return {
            **instance_samples(self._library, mig.device(self._library, card.handle, instance)),
            **self._profiling.measure(card.address, card.handle, instance.gpu_instance),
        }
