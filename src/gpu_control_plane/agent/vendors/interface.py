"""What the agent needs to know of a vendor to serve its cards. Everything else in the agent is the same for all.

A vendor is a folder beside this file with a module `support` that has a `SUPPORT: VendorSupport`. That module is
imported on every node, so whatever is large (a binding of the driver's library) is imported inside the methods.
What a vendor may go without has a default here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Protocol

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, Details, Instance
from gpu_control_plane.agent.backends.sysfs import PCIVendor, Sysfs
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.driver.origin import DriverSearch, Origin
from gpu_control_plane.agent.health import HealthRules
from gpu_control_plane.api.gpudevice import Hardware, Vendor
from gpu_control_plane.api.gpunodestate import Driver, StepResult

DRIVER_STEP: Final = "driver"
"""What the check of the driver is called."""

_NAMED: Final = 4


class LabelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the feature labels of a Node follow from. Cards are named by PCI address."""

    cards: Sequence[Hardware]
    driver: Driver | None = None
    details: Mapping[str, Details] = {}
    machine: str = "unknown"
    """The machine's model, from DMI."""
    replicas: Mapping[str, int] = {}
    """Into how many replicas a card is divided by time slicing; a card that is not mentioned is whole."""
    instances: Mapping[str, Sequence[Instance]] = {}


class CheckOutcome(msgspec.Struct, frozen=True):
    """How a check of the node ended. The sentence holds nothing that differs from one run to the next, such as times:
    a status is written when it changes."""

    result: StepResult
    message: str


def passed(message: str) -> CheckOutcome:
    return CheckOutcome(StepResult.PASSED, message)


def failed(message: str) -> CheckOutcome:
    return CheckOutcome(StepResult.FAILED, message)


def some(names: Iterable[str]) -> str:
    """The first few of them, for an outcome: messages have a limit, and people too."""
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


class DriverCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the check of the driver found."""

    outcome: CheckOutcome
    version: str | None = None
    """Of the loaded kernel module; None where none is loaded. What was proven with another version counts no more."""
    origin: Origin | None = None
    """Whose driver it is, where its library was found."""


class StatusFiles(Protocol):
    """Files by which other programs of the node learn that a check has passed.

    A file is there only while its check holds: it goes before the check begins, and comes whole after it has passed.
    """

    def withdraw(self, step: str) -> None: ...

    def publish(self, step: str, driver: DriverCheck) -> None: ...


class VendorChecks(Protocol):
    """The vendor's own checks of a node. They read files and call the backend, and may block."""

    status_files: StatusFiles | None

    def check_driver(self, backend: Backend) -> DriverCheck:
        """Whether the driver is loaded and programs can use it."""

    def check_extras(self) -> Mapping[str, CheckOutcome | None]:
        """Further checks by name; None for those that are switched off."""


class VendorSupport(Protocol):
    """One vendor."""

    vendor: ClassVar[Vendor]
    pci: ClassVar[PCIVendor]
    health: HealthRules
    container_driver_roots: tuple[Path, ...] = ()
    """Where this vendor's driver containers put their file system, unless they are told otherwise."""
    plugin_resources: tuple[str, ...] = ()
    """Resources under which other device plugins offer these cards; a name that ends in `/` or `-` stands for all that
    begin so. Not every resource of a vendor is a card: NVIDIA's network cards have some, too."""
    pause_labels: tuple[str, ...] = ()
    """Prefixes of Node labels by which a driver manager asks the programs around the driver to release it."""
    kernel_step: str | None = None
    """What the check that runs `kernel_command` on every card is called; None where the vendor has no such program."""
    visible_devices: str | None = None
    """The variable that tells the vendor's own container runtime which cards a container gets; None without one."""
    runtime_handler: str | None = None
    """What the RuntimeClass of such pods names; None without one."""

    def open_backend(self, search: DriverSearch, sysfs: Sysfs) -> Backend:
        """The driver, opened; raises DriverUnavailable with the reason."""

    def device_name(self, details: Details) -> str:
        """What metrics call the card's device file, such as `nvidia0`."""

    def container_edits(self, version: str | None, search: DriverSearch, *, hooks: bool) -> Edits:
        """What every container with a card of this vendor needs beside device files.

        `version` is that of the loaded driver; None where cards need no files of it, as simulated ones. `hooks` says
        whether the container runtime may be told to run programs of the host. Raises BackendError where the driver's
        files are not to be found.
        """

    def labels(self, facts: LabelFacts, held: Mapping[str, str], now: float) -> dict[str, str]:
        """The feature labels of a node; `held` are those of them that the Node has now."""
        return {}

    def owns_label(self, name: str) -> bool:
        """Whether `labels` writes labels of this name, and so takes them away."""
        return False

    def checks(self, search: DriverSearch, status_files: Path | None, extras: Collection[str]) -> VendorChecks:
        """The checks of a node with such cards.

        `status_files` is the folder for files of checks that passed, None for the vendor's own; `extras` are further
        checks to make.
        """

    def kernel_command(self, search: DriverSearch) -> Sequence[str] | None:
        """The program that runs a kernel on one card and checks its result; None where there is none.

        `validator.kernel` says what is asked of it.
        """
        return None

    def burn_in_command(self, search: DriverSearch) -> Sequence[str] | None:
        """The program that tests a new card; None where there is none. `burnin.program` says what is asked of it."""
        return None
