"""The simulated driver with one H200, whose calls can be counted, made to fail or survived by nobody."""

from collections.abc import Iterable, Set

from gpu_control_plane.agent.backends.interface import Instance, NoRoom, Process
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.agent.simulated.models import pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.rules.mig_layout import Geometry, Slot, by_size

ADDRESS = pci_address(0)


class Killed(BaseException):
    """The agent dies here."""


class Driver(SimulatedBackend):
    """`trouble` is raised at call number `at`: before the call does anything, or, with `late`, after it has."""

    def __init__(self, places: Iterable[Slot] = (), *, enabled: bool = True) -> None:
        self._programs: dict[str, list[Process]] = {}
        self.cuts_nothing = False
        super().__init__("node-a", new_machine("H200-141", 1), processes=self._programs, before_create=self._cutting)
        self.calls: list[str] = []
        self.reset_needed = False
        self.trouble: BaseException | None = None
        self.at = -1
        self.late = False
        super().set_mig_mode(ADDRESS, enabled=enabled)
        for slot in by_size(places):
            super().create_instance(ADDRESS, slot.profile, slot.start)

    @property
    def geometry(self) -> Geometry:
        return frozenset(Slot.of(instance) for instance in super().instances(ADDRESS))

    @property
    def enabled(self) -> bool:
        mig = super().cards()[0].mig
        return mig is not None and mig.enabled

    @property
    def changes(self) -> list[str]:
        """The calls that change something."""
        return [call for call in self.calls if call.partition(" ")[0] in {"mode", "create", "destroy"}]

    def uuid(self, slot: Slot) -> str:
        return next(instance.uuid for instance in super().instances(ADDRESS) if Slot.of(instance) == slot)

    def runs(self, *slots: Slot) -> None:
        """Programs run on these instances, and the driver tells about them."""
        self._programs[ADDRESS] = [Process(pid=4000 + slot.start, instance=self.uuid(slot)) for slot in slots]

    def hides(self, slots: Set[Slot] = frozenset(), *, card: bool = False) -> None:
        """Users of these instances, or of the card, that only show when it is to change."""
        self.occupy({ADDRESS} if card else frozenset(), {self.uuid(slot) for slot in slots})

    def cards(self) -> tuple[Hardware, ...]:
        self._call("cards")
        return super().cards()

    def instances(self, address: str) -> tuple[Instance, ...]:
        self._call("instances")
        return super().instances(address)

    def set_mig_mode(self, address: str, *, enabled: bool) -> None:
        late = self._call(f"mode {'on' if enabled else 'off'}")
        if not self.reset_needed:
            super().set_mig_mode(address, enabled=enabled)
        self._raise(late)

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        late = self._call(f"create {profile}@{start}")
        made = super().create_instance(address, profile, start)
        self._raise(late)
        return made

    def destroy_instance(self, address: str, instance: Instance) -> None:
        late = self._call(f"destroy {Slot.of(instance)}")
        super().destroy_instance(address, instance)
        self._raise(late)

    def _cutting(self, attempt: int) -> None:
        if self.cuts_nothing:
            raise NoRoom("There is no room.")

    def _call(self, name: str) -> bool:
        """Note a call and raise its trouble, unless that is due only after it; whether it is."""
        due = len(self.calls) == self.at
        self.calls.append(name)
        if due and not self.late:
            self._raise(due)
        return due

    def _raise(self, due: bool) -> None:
        if due and self.trouble is not None:
            raise self.trouble
