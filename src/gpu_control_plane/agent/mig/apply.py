"""Partitions a card by MIG: carries a plan out, and puts everything back when the driver fails on the way.

Nothing is remembered between runs. The agent may die between any two calls to the driver; the next run plans from
what it then finds. Calls block: whoever has an event loop makes them in a thread.
"""

import enum
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from gpu_control_plane.agent.backends.interface import Backend, BackendError, Instance, InUse, NotSupported, Process
from gpu_control_plane.agent.mig.plan import CardUse, Create, Destroy, PartitionPlan, PartitionStep, SwitchMode, plan
from gpu_control_plane.agent.units import CardID
from gpu_control_plane.api.allocation import MIG
from gpu_control_plane.api.gpudevice import MIGCapability
from gpu_control_plane.rules.mig_layout import Geometry, Misconfigured, Slot, by_size


class Result(enum.Enum):
    """How an attempt ended."""

    APPLIED = "Applied"
    """The card is partitioned as its order says."""
    WAITING = "Waiting"
    """It is as close to that as it can be until the pods in the way have ended."""
    MISCONFIGURED = "Misconfigured"
    """The order can never be met by this card, which was left alone."""
    FAILED = "Failed"
    """The driver failed."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an attempt."""

    result: Result
    reason: str | None = None
    """For people; None when there is nothing to say."""
    rolled_back: bool = False
    """After a failure: whether the card is again as it was before."""
    wanted: Geometry = frozenset()
    """The instances that the card is to advertise. Others on it only wait for their pods to end."""


class PartitionTask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an attempt to partition a card depends on: the same task again would end the same way."""

    card: CardID
    address: str
    target: MIG | None
    """None makes the card whole again."""
    instances: tuple[Instance, ...]
    """What the card was seen to have when the task was made."""
    mig_enabled: bool
    holders: tuple[tuple[Slot, str], ...]
    """Instances that must not be touched, and who has them: those of pods, and those the kubelet may still allocate."""
    holder: str | None
    """Who has the whole card."""


def partition(backend: Backend, task: PartitionTask) -> tuple[Outcome, bool]:
    """Carry a task out; returns the outcome, and whether the card may differ from what the task was made on.

    Processes that the driver sees running are respected beside the holders that the task names. Blocks.
    """
    outcome = apply(backend, task.address, task.target, dict(task.holders), task.holder)
    try:
        modes = {card.pci.address: card.mig is not None and card.mig.enabled for card in backend.cards()}
        found = backend.instances(task.address), modes.get(task.address)
    except BackendError:
        return outcome, True  # A card that was lost on the way does not tell.
    return outcome, (task.instances, task.mig_enabled) != found


def apply(
    backend: Backend, address: str, target: MIG | None, holders: Mapping[Slot, str], holder: str | None = None
) -> Outcome:
    """Partition the card as `target` says, or make it whole again when that is None."""
    return _Attempt(backend, address, holders, holder).run(target)


class _ResetNeeded(BackendError):
    """The driver took the new mode, but the card changes only when it is reset."""


class _PlanOutdated(Exception):
    """An instance that was to go turned out to be in use."""


class _Attempt:
    """One run over one card, which knows how it found the card so that it can put everything back."""

    def __init__(self, backend: Backend, address: str, holders: Mapping[Slot, str], holder: str | None) -> None:
        self._backend = backend
        self._address = address
        self._holders = dict(holders)
        self._holder = holder
        self._found: CardUse | None = None

    def run(self, target: MIG | None) -> Outcome:
        try:
            while True:
                with suppress(_PlanOutdated):
                    return self._carry_out(plan(self._look(), target))
        except Misconfigured as error:
            return Outcome(result=Result.MISCONFIGURED, reason=str(error))
        except BackendError as error:
            return Outcome(result=Result.FAILED, reason=str(error), rolled_back=self._roll_back())

    def _look(self) -> CardUse:
        capability = self._capability()
        instances = self._backend.instances(self._address)
        running = {program.instance: f"process {program.pid}" for program in self._programs()}
        seen = {Slot.of(instance): running[instance.uuid] for instance in instances if instance.uuid in running}
        card = CardUse(
            capability=capability,
            instances=instances,
            holders={**seen, **self._holders},
            holder=self._holder or running.get(None),
        )
        self._found = self._found or card
        return card

    def _programs(self) -> tuple[Process, ...]:
        try:
            return self._backend.processes(self._address)
        except NotSupported:
            return ()

    def _capability(self) -> MIGCapability | None:
        for card in self._backend.cards():
            if card.pci.address == self._address:
                return card.mig
        raise BackendError(f"There is no card at {self._address}.")

    def _enabled(self) -> bool:
        capability = self._capability()
        return capability is not None and capability.enabled

    def _carry_out(self, planned: PartitionPlan) -> Outcome:
        try:
            for step in planned.steps:
                self._take(step)
        except (InUse, _ResetNeeded) as error:
            return Outcome(result=Result.WAITING, reason=str(error), wanted=planned.wanted)
        result = Result.WAITING if planned.waiting else Result.APPLIED
        return Outcome(result=result, reason=planned.waiting, wanted=planned.wanted)

    def _take(self, step: PartitionStep) -> None:
        match step:
            case SwitchMode(enabled):
                self._backend.set_mig_mode(self._address, enabled=enabled)
                if self._enabled() is not enabled:
                    mode = "on" if enabled else "off"
                    raise _ResetNeeded(f"MIG mode is set to {mode} and takes effect once the card is reset.")
            case Destroy(instance):
                try:
                    self._backend.destroy_instance(self._address, instance)
                except InUse as error:
                    self._holders[Slot.of(instance)] = f"a process outside Kubernetes ({error})"
                    raise _PlanOutdated from error
            case Create(slot):
                self._backend.create_instance(self._address, slot.profile, slot.start)

    def _roll_back(self) -> bool:
        """Put the card back as it was found, as far as the driver lets us; whether it really is.

        Goes by what the card then holds, not by what was done: a call that failed may have worked all the same.
        """
        if self._found is None:
            return True
        try:
            return self._restored(self._found)
        except BackendError:
            return False

    def _restored(self, found: CardUse) -> bool:
        before = {Slot.of(instance) for instance in found.instances}
        enabled = found.capability is not None and found.capability.enabled
        if enabled and not self._enabled():
            self._backend.set_mig_mode(self._address, enabled=True)
        present = self._backend.instances(self._address)
        for extra in sorted((one for one in present if Slot.of(one) not in before), key=Slot.of, reverse=True):
            with suppress(BackendError):
                self._backend.destroy_instance(self._address, extra)
        for slot in by_size(before - {Slot.of(instance) for instance in present}):
            with suppress(BackendError):
                self._backend.create_instance(self._address, slot.profile, slot.start)
        if not enabled and self._enabled():
            self._backend.set_mig_mode(self._address, enabled=False)
        present = self._backend.instances(self._address)
        return {Slot.of(instance) for instance in present} == before and self._enabled() is enabled
