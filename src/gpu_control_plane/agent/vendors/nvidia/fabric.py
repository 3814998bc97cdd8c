"""Fabric Manager, on machines with NVSwitches.

It sets up the switches between the cards. Without it every CUDA program ends with «system not yet initialized»,
although the driver answers and the cards look well. A driver container brings its own; a host has to run one.
"""

from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Backend
from gpu_control_plane.agent.vendors.interface import CheckOutcome, failed, some

_VENDOR: Final = "0x10de"
_BRIDGE: Final = "0x0680"
"""The PCI class of an NVSwitch: a bridge of another kind."""
_SOCKET: Final = "run/nvidia-fabricmanager/socket"
_PROCESS: Final = "nv-fabricmanager"[:15]
"""As the kernel shortens it."""


class FabricFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The NVLink fabric inside a machine."""

    switches: int = 0
    """NVSwitches on the PCI bus."""
    manager_runs: bool = False
    waiting_cards: tuple[str, ...] = ()
    """Cards that are on a fabric which is not set up, by PCI address."""


def observe_fabric(backend: Backend, root: Path) -> FabricFacts:
    """Look at the host's bus and processes, and ask the driver about each card."""
    return FabricFacts(
        switches=_switches(root),
        manager_runs=_manager_runs(root),
        waiting_cards=tuple(
            card.pci.address for card in backend.cards() if backend.signals(card.pci.address).fabric_pending
        ),
    )


def check_fabric(facts: FabricFacts, driver: str | None) -> CheckOutcome | None:
    """What is wrong with the fabric; None where nothing is, or there is none."""
    version = f" {driver}" if driver else ""
    if facts.switches and not facts.manager_runs:
        return failed(
            f"Fabric Manager does not run, and programs cannot use the cards before it has set up the machine's "
            f"{facts.switches} NVSwitches. Install nvidia-fabricmanager of the driver's own version{version}, and "
            "start it: systemctl enable --now nvidia-fabricmanager."
        )
    if facts.waiting_cards and not facts.manager_runs:
        return failed(
            f"{some(facts.waiting_cards)} wait for Fabric Manager, which does not run. Install nvidia-fabricmanager of "
            f"the driver's own version{version}, and start it: systemctl enable --now nvidia-fabricmanager."
        )
    if facts.waiting_cards:
        return failed(
            f"Fabric Manager runs, but has not set up the fabric of {some(facts.waiting_cards)}. Its version has to be "
            f"the driver's{version}; read journalctl -u nvidia-fabricmanager, and restart it."
        )
    return None


def _switches(root: Path) -> int:
    devices = root / "sys/bus/pci/devices"
    try:
        folders = list(devices.iterdir())
    except OSError:
        return 0
    return sum(_first(each / "vendor") == _VENDOR and _first(each / "class")[:6] == _BRIDGE for each in folders)


def _manager_runs(root: Path) -> bool:
    """By its process, or by its socket where processes of the host are hidden from us."""
    if any(_first(each) == _PROCESS for each in (root / "proc").glob("[0-9]*/comm")):
        return True
    return (root / _SOCKET).is_socket()


def _first(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # Processes and devices come and go.
        return ""
