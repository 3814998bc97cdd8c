"""Machines as the kernel shows them: a folder with what Node Feature Discovery and our own discovery read."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from helm.nfd.cards import CARDS, COMPANIONS, NETWORK, STRANGERS, Function

BMC: Final = STRANGERS[0]
"""The screen of a server's management controller; nearly every server has one."""

T4, RTX_4090, A40, H100 = (
    next(card for card in CARDS if card.device == device) for device in ("1eb8", "2684", "2235", "2330")
)
NVSWITCH: Final = next(each for each in COMPANIONS if each.device == "22a3")


class System(msgspec.Struct, frozen=True):
    """What an operating system says of itself."""

    id: str
    version: str


UBUNTU: Final = System("ubuntu", "24.04")


class Machine(msgspec.Struct, frozen=True):
    name: str
    functions: tuple[Function, ...]
    cards: tuple[Function, ...] = ()
    """Those of the functions that are cards."""
    system: System = UBUNTU

    def build(self, folder: Path) -> Path:
        """Lay the machine's files out, anew if they are there: `host-sys` and `host-etc` in the folder."""
        bus = folder / "host-sys/bus/pci/devices"
        shutil.rmtree(bus, ignore_errors=True)
        bus.mkdir(parents=True)
        for number, function in enumerate(self.functions):
            _write(bus / f"0000:{number:02x}:00.0", function)
        (folder / "host-etc").mkdir(exist_ok=True)
        (folder / "host-etc/os-release").write_text(f'ID={self.system.id}\nVERSION_ID="{self.system.version}"\n')
        return folder


def _write(folder: Path, function: Function) -> None:
    folder.mkdir()
    for name, value in {
        "vendor": function.vendor,
        "device": function.device,
        "class": f"{function.class_}00",
        "subsystem_vendor": function.vendor,
        "subsystem_device": "0001",
    }.items():
        (folder / name).write_text(f"0x{value}\n")


def _with_card(card: Function) -> Machine:
    """The card among everything that is next to cards and must not count."""
    return Machine(f"card-{card.device}-{card.class_}", (BMC, *COMPANIONS[:4], card, *COMPANIONS[4:]), (card,))


MACHINES: Final = (
    *(_with_card(card) for card in CARDS),
    Machine("empty", ()),
    Machine("strangers", STRANGERS),
    Machine("companions", (BMC, *COMPANIONS)),
    Machine("eight", (BMC, *(H100,) * 4, *(NVSWITCH,) * 4, *(H100,) * 4), (H100,) * 8, System("rhel", "9.6")),
    Machine("mixed", (RTX_4090, BMC, T4), (RTX_4090, T4), System("sles", "15.7")),
    Machine("virtual-functions", (A40,) * 20, (A40,) * 20, System("debian", "13")),
)
OLD_BOARD: Final = Machine("old-board", (NETWORK,))
"""With a network chip of NVIDIA's and no card."""

_PREFIX: Final = "gpu.deckhouse.io/"
_NUMBERED: Final = 16
"""As many cards have labels of their own."""


def ours(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that the rule is about, without their prefix."""
    return {name.removeprefix(_PREFIX): value for name, value in labels.items() if name.startswith(_PREFIX)}


def labels_for(machine: Machine) -> dict[str, str]:
    """What the rule has to say of a machine whose kernel says nothing: nothing at all where there is no card."""
    if not machine.cards:
        return {}
    labels = {"present": "true", "gpu.present": "true", "device-count": str(len(machine.cards))}
    for number, card in enumerate(machine.cards[:_NUMBERED]):
        facts = {"vendor": card.vendor, "device": card.device, "class": card.class_}
        labels |= {f"device.{number:02}.{name}": value for name, value in facts.items()}
    return labels | {"os.id": machine.system.id, "os.version_id": machine.system.version}
