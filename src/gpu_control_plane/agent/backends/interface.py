"""What the agent asks of hardware, whatever is behind it: a vendor's driver, the bare PCI bus, or a simulation.

Every capability is optional: a card that does not report something leaves the field empty, which must not be taken for
a fault. Calls may block: code with an event loop makes them in a thread.
"""

import enum
from collections.abc import Mapping
from typing import Protocol

import msgspec

from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.nodefeature import NodeFacts


class BackendError(Exception):
    """The hardware, or the driver above it, refused; the sentence says what and why."""


class DriverUnavailable(BackendError):
    """There is no usable driver: not installed, not loaded, or of another version than its library."""


class DriverHung(BackendError):
    """A call into the driver does not return."""


class CardLost(BackendError):
    """The card no longer answers."""


class NotSupported(BackendError):
    """This hardware or driver cannot do that."""


class NotPermitted(BackendError):
    """The agent lacks the right to do that."""


class InUse(BackendError):
    """A program still uses what was to be changed."""


class NoRoom(BackendError):
    """The card has no room for a MIG instance of this profile."""


class Recovery(enum.IntEnum):
    """The recovery action that the driver asks for."""

    NONE = 0
    RESET = 1
    REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX = 5


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe says about the health of one card. The defaults are those of a healthy card."""

    xids: tuple[int, ...] = ()
    """Error codes that the driver has reported since the card was last cleared, oldest first."""
    clears: int = 0
    """How often the error reports were cleared since the backend was opened: a report that came after a clear is new,
    even if it is the same as one before."""
    lost: bool = False
    """The card no longer answers on the bus."""
    uncorrected_ecc: int = 0
    """Uncorrected memory errors since the driver was loaded."""
    corrected_ecc: int = 0
    """Corrected memory errors since the driver was loaded."""
    remap_failed: bool = False
    """A bad row of memory could not be replaced by a spare one."""
    remap_pending: bool = False
    """A bad row of memory will be replaced at the next reset."""
    overheated: bool = False
    """The card has slowed itself down to protect itself."""
    recovery: Recovery = Recovery.NONE
    """What the driver asks for."""
    fabric_pending: bool = False
    """It is on an NVLink fabric that is not set up. That is for the node's software to do: no fault of the card."""


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What one card measures at the moment; None for what it does not report."""

    temperature: int | None = None
    """Degrees Celsius."""
    power: int | None = None
    """Watts."""
    utilisation: int | None = None
    """Percent."""
    memory_used: int | None = None
    """MiB."""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What matters on the node only, and is not published."""

    index: int
    """The card's index in the driver's order, for people and labels; it does not identify the card."""
    minor: int | None = None
    """The number of its device file."""
    serial: str | None = None
    pci_root: str | None = None
    """The root port or host bridge above it, such as `pci0000:16`."""
    links: Mapping[str, int] = {}
    """The number of NVLinks to each other card, by PCI address."""
    clique: str | None = None
    """`<cluster>.<clique>` on an NVLink fabric."""


class DeviceFile(msgspec.Struct, frozen=True):
    """A device file that a container needs."""

    path: str
    """Its path in the container."""
    host_path: str = ""
    """Its path on the host; the same if empty."""

    @property
    def source(self) -> str:
        return self.host_path or self.path


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG instance that exists: a GPU instance with one compute instance that spans it."""

    profile: str
    """As the driver spells it, such as `1g.18gb+me`."""
    start: int
    """First memory slice."""
    size: int
    """Memory slices."""
    uuid: str
    gpu_instance: int
    compute_instance: int


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a card."""

    pid: int
    memory_mib: int | None = None
    utilisation: int | None = None
    """Percent of the card's time."""
    instance: str | None = None
    """UUID of the MIG instance that it runs on."""


class Inventory(Protocol):
    """The cards of a node, without what can be done with them."""

    def facts(self) -> NodeFacts:
        """The node as a whole: driver, toolkit, and how many cards the bus shows."""

    def cards(self) -> tuple[Hardware, ...]:
        """Every card, in the order of their addresses."""


class Backend(Inventory, Protocol):
    """The cards of one node. Cards are named by PCI address, as `Hardware.pci.address` has it."""

    def open(self) -> None:
        """Open the driver; raises DriverUnavailable. Opening twice is no error."""

    def close(self) -> None:
        """Release the driver and every device file, so that it can be unloaded. Closing twice is no error."""

    def details(self, address: str) -> Details:
        """The details of the card at this address."""

    def signals(self, address: str) -> Signals:
        """The health signals of the card at this address, probed now."""

    def clear(self, address: str) -> None:
        """Clear the error codes of this card: it was repaired, or has recovered."""

    def wait(self, seconds: float) -> frozenset[str]:
        """Block until the driver reports something, at most this long; the addresses of the cards concerned."""

    def readings(self, address: str) -> Readings:
        """The measurements of the card at this address."""

    def samples(self, address: str, instance: Instance | None = None) -> Mapping[str, float]:
        """Everything that the card, or one of its MIG instances, measures, by dcgm-exporter's names.

        What it does not report is left out.
        """

    def processes(self, address: str) -> tuple[Process, ...]:
        """The processes on the card."""

    def control_files(self) -> tuple[DeviceFile, ...]:
        """The device files that every container with a card needs."""

    def device_files(self, address: str) -> tuple[DeviceFile, ...]:
        """The device files of the card itself."""

    def instance_files(self, address: str, instance: Instance) -> tuple[DeviceFile, ...]:
        """The device files that a MIG instance needs beside those of its card."""

    def instances(self, address: str) -> tuple[Instance, ...]:
        """The MIG instances of the card, in the order of their places; none while MIG is off."""

    def set_mig_mode(self, address: str, *, enabled: bool) -> None:
        """Switch MIG on or off; raises InUse while a program uses the card."""

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """Create an instance at this place; raises NoRoom when it overlaps another."""

    def destroy_instance(self, address: str, instance: Instance) -> None:
        """Destroy an instance; raises InUse while a program runs on it."""
