"""Everything the agent has to know of Acme's cards."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, override

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, Details, DeviceFile, DriverUnavailable, Signals
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.backends.sysfs import PCIVendor, Sysfs
from gpu_control_plane.agent.cdi.edits import Edits, Mount
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.health import HealthRules, Verdict
from gpu_control_plane.agent.vendors.interface import DriverCheck, LabelFacts, VendorChecks, VendorSupport, passed
from gpu_control_plane.api.gpudevice import Hardware, Vendor
from gpu_control_plane.api.gpunodestate import Driver
from gpu_control_plane.api.nodefeature import NodeFacts

_PCI: Final = PCIVendor(vendor=Vendor.AMD, id="1002", classes=frozenset({"0380", "1200"}), products={"74a1": "MI300X"})


class AcmeBackend(PCIBackend):
    """What the bus shows, and what the driver's folder adds to it: an id and an error code for each card."""

    def __init__(self, folder: Path, sysfs: Sysfs) -> None:
        super().__init__((_PCI,), sysfs=sysfs)
        self._folder = folder

    @override
    def facts(self) -> NodeFacts:
        return msgspec.structs.replace(super().facts(), driver=Driver(version=self._read("version")))

    @override
    def cards(self) -> tuple[Hardware, ...]:
        return tuple(
            msgspec.structs.replace(card, uuid=f"ACME-{self._read(card.pci.address)}") for card in super().cards()
        )

    @override
    def signals(self, address: str) -> Signals:
        codes = self._read(f"{address}.errors").split()
        return msgspec.structs.replace(super().signals(address), xids=tuple(map(int, codes)))

    @override
    def device_files(self, address: str) -> tuple[DeviceFile, ...]:
        return (DeviceFile(f"/dev/acme{self.details(address).index}"),)

    def _read(self, name: str) -> str:
        file = self._folder / name
        return file.read_text().strip() if file.exists() else ""


class AcmeRules(HealthRules):
    """Code 1 is a program's fault, every other is the card's."""

    def faults(self, codes: Sequence[int]) -> Sequence[Verdict]:
        return [Verdict(False, f"Acme{code}", f"{self.name(code)}: send the card back.") for code in codes if code != 1]

    def name(self, code: int) -> str:
        return f"Acme error {code}"

    def is_memory_error(self, code: int) -> bool:
        return code == 2

    def is_of_program(self, code: int) -> bool:
        return code == 1

    def is_contained(self, code: int) -> bool:
        return False


class AcmeChecks(VendorChecks):
    status_files = None

    def check_driver(self, backend: Backend) -> DriverCheck:
        driver = backend.facts().driver
        version = driver.version if driver else None
        return DriverCheck(outcome=passed(f"Acme's driver {version} answers."), version=version)

    def check_extras(self) -> Mapping[str, None]:
        return {}


class Acme(VendorSupport):
    vendor = Vendor.AMD
    pci = _PCI
    health = AcmeRules()
    plugin_resources = ("acme.example/",)
    pause_labels = ("acme.example/deploy.",)
    visible_devices = "ACME_VISIBLE_DEVICES"

    def open_backend(self, search: DriverSearch, sysfs: Sysfs) -> Backend:
        for root in search.roots:
            if (root / "acme/version").exists():
                return AcmeBackend(root / "acme", sysfs)
        raise DriverUnavailable("Acme's driver is not installed.")

    def device_name(self, details: Details) -> str:
        return f"acme{details.index}"

    def container_edits(self, version: str | None, search: DriverSearch, *, hooks: bool) -> Edits:
        library = f"/usr/lib/libacme.so.{version}"
        return Edits(mounts=(Mount(host_path=library, container_path="/usr/lib/libacme.so"),) if version else ())

    @override
    def labels(self, facts: LabelFacts, held: Mapping[str, str], now: float) -> dict[str, str]:
        count = sum(card.vendor is self.vendor for card in facts.cards)
        return {"acme.example/cards": str(count)} if count else {}

    @override
    def owns_label(self, name: str) -> bool:
        return name == "acme.example/cards"

    def checks(self, search: DriverSearch, status_files: Path | None, extras: Collection[str]) -> VendorChecks:
        return AcmeChecks()


SUPPORT: Final = Acme()
