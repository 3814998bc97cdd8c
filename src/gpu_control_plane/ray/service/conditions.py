"""The conditions of a RayService, in KubeRay's words, with sentences that say what it waits for. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.ray.reasons import ServiceReason
from gpu_control_plane.api.ray.service import RayService, ServiceCondition
from gpu_control_plane.kube.conditions import TRUE, condition, find
from gpu_control_plane.kube.objects import Condition

_SPECIAL: Final = frozenset({ServiceReason.INITIALIZING_TIMEOUT, ServiceReason.VALIDATION_FAILED})


class ConditionInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the conditions of a service that runs depend on."""

    active: str = ""
    pending: str = ""
    endpoints: int = 0
    back: bool = False
    refused: str = ""
    config_refused: str = ""
    progress: str = ""
    """What the clusters wait for, or how far the upgrade is."""
    loss: str = ""
    """Why nothing answers for a time, where that is known."""


class ConditionWriter:
    """Builds on the conditions in the status; each keeps its transition time while its status stays."""

    def __init__(self, service: RayService, now: datetime) -> None:
        self._held = {item.type: item for item in service.status.conditions}
        # An operator that writes conditions is the only active one.
        self.drop(ServiceCondition.OTHER_OPERATOR_ACTIVE)
        self._generation = service.metadata.generation
        self._now = now

    def set(
        self, kind: ServiceCondition, status: bool | None, reason: ServiceReason, message: str = ""
    ) -> "ConditionWriter":
        made = condition(
            self._held.values(),
            kind.value,
            status,
            reason.value,
            message[:1024],
            generation=self._generation,
            now=self._now,
        )
        self._held[kind.value] = made
        return self

    def drop(self, kind: ServiceCondition) -> "ConditionWriter":
        self._held.pop(kind.value, None)
        return self

    def done(self) -> tuple[Condition, ...]:
        return tuple(self._held.values())


def running(service: RayService, inputs: ConditionInputs, now: datetime) -> tuple[Condition, ...]:
    """The conditions of a service that has clusters, or is about to."""
    writer = ConditionWriter(service, now)
    _ready(writer, service.status.conditions, inputs)
    if inputs.active and inputs.pending:
        writer.set(ServiceCondition.UPGRADE_IN_PROGRESS, True, ServiceReason.BOTH_CLUSTERS, inputs.progress)
    elif inputs.active:
        writer.set(ServiceCondition.UPGRADE_IN_PROGRESS, False, ServiceReason.NO_PENDING)
    elif find(service.status.conditions, ServiceCondition.UPGRADE_IN_PROGRESS) is None:
        writer.set(ServiceCondition.UPGRADE_IN_PROGRESS, False, ServiceReason.INITIALIZING)
    else:
        writer.set(ServiceCondition.UPGRADE_IN_PROGRESS, None, ServiceReason.NO_ACTIVE, inputs.progress)
    if inputs.back:
        message = "the spec has changed: the active cluster gets everything back first"
        writer.set(ServiceCondition.ROLLBACK_IN_PROGRESS, True, ServiceReason.SPEC_CHANGED, message)
    elif find(service.status.conditions, ServiceCondition.ROLLBACK_IN_PROGRESS) is not None:
        writer.set(ServiceCondition.ROLLBACK_IN_PROGRESS, False, ServiceReason.NO_ROLLBACK)
    if inputs.refused:
        message = f"the change of spec.rayClusterConfig is not carried out: {inputs.refused}"
        writer.set(ServiceCondition.UP_TO_DATE, False, ServiceReason.NOT_CARRIED_OUT, message)
    elif inputs.pending and inputs.active:
        writer.set(ServiceCondition.UP_TO_DATE, False, ServiceReason.UPGRADING, inputs.progress)
    elif inputs.active and inputs.config_refused:
        writer.set(ServiceCondition.UP_TO_DATE, False, ServiceReason.CONFIG_NOT_ACCEPTED, inputs.config_refused)
    elif inputs.active:
        writer.set(ServiceCondition.UP_TO_DATE, True, ServiceReason.UP_TO_DATE)
    return writer.done()


def invalid(service: RayService, problems: str, now: datetime) -> tuple[Condition, ...]:
    """The conditions while the spec is invalid. Nothing else is changed; a corrected spec is enough to go on."""
    return _not_ready(service, ServiceReason.VALIDATION_FAILED, problems, now)


def timed_out(service: RayService, message: str, now: datetime) -> tuple[Condition, ...]:
    return _not_ready(service, ServiceReason.INITIALIZING_TIMEOUT, message, now)


def not_written(service: RayService, message: str, now: datetime) -> tuple[Condition, ...]:
    """A Service could not be written: one of its name has another owner, or the API server refused it. A cluster that
    answers goes on."""
    writer = ConditionWriter(service, now).set(ServiceCondition.UP_TO_DATE, False, ServiceReason.NOT_WRITTEN, message)
    ready = find(service.status.conditions, ServiceCondition.READY)
    if ready is None or ready.reason == ServiceReason.INITIALIZING:
        writer.set(ServiceCondition.READY, False, ServiceReason.INITIALIZING, message)
    return writer.done()


def suspending(service: RayService, left: str, now: datetime) -> tuple[Condition, ...]:
    """While clusters are being deleted. A suspension is completed, whatever the spec says meanwhile."""
    reason = ServiceReason.SUSPENDING if left else ServiceReason.SUSPEND_REQUESTED
    held = find(service.status.conditions, ServiceCondition.SUSPENDING)
    begun = held is not None and held.status == TRUE
    return (
        ConditionWriter(service, now)
        .set(ServiceCondition.SUSPENDING, True, reason if begun else ServiceReason.SUSPEND_REQUESTED, left)
        .set(ServiceCondition.READY, False, ServiceReason.SUSPENDING)
        .set(ServiceCondition.UPGRADE_IN_PROGRESS, False, ServiceReason.SUSPENDING)
        .done()
    )


def suspended(service: RayService, now: datetime) -> tuple[Condition, ...]:
    return (
        ConditionWriter(service, now)
        .set(ServiceCondition.SUSPENDING, False, ServiceReason.SUSPENDED)
        .set(ServiceCondition.SUSPENDED, True, ServiceReason.SUSPENDED)
        .set(ServiceCondition.READY, False, ServiceReason.SUSPENDED)
        .set(ServiceCondition.UPGRADE_IN_PROGRESS, False, ServiceReason.SUSPENDED)
        .done()
    )


def resumed(service: RayService, now: datetime) -> tuple[Condition, ...]:
    """After a suspension a service starts as a new one does."""
    return (
        ConditionWriter(service, now)
        .set(ServiceCondition.SUSPENDED, False, ServiceReason.RESUMED)
        .set(ServiceCondition.READY, False, ServiceReason.INITIALIZING)
        .set(ServiceCondition.UPGRADE_IN_PROGRESS, False, ServiceReason.INITIALIZING)
        .done()
    )


def other_operator_reported(service: RayService, other: str, now: datetime) -> tuple[Condition, ...]:
    message = f"KubeRay's operator is active ({other}), so this one changes nothing"
    return (
        ConditionWriter(service, now)
        .set(ServiceCondition.OTHER_OPERATOR_ACTIVE, True, ServiceReason.OTHER_OPERATOR, message)
        .done()
    )


def reason_of(conditions: Iterable[Condition], kind: ServiceCondition) -> str:
    found = find(conditions, kind)
    return found.reason if found is not None else ""


def _ready(writer: ConditionWriter, held: Iterable[Condition], inputs: ConditionInputs) -> None:
    before = find(held, ServiceCondition.READY)
    if inputs.endpoints:
        writer.set(ServiceCondition.READY, True, ServiceReason.NON_ZERO_ENDPOINTS)
    elif before is not None and _has_answered(before, inputs):
        writer.set(ServiceCondition.READY, False, ServiceReason.ZERO_ENDPOINTS, inputs.loss)
    else:
        writer.set(ServiceCondition.READY, False, ServiceReason.INITIALIZING, inputs.progress)


def _has_answered(before: Condition, inputs: ConditionInputs) -> bool:
    """Whether the service has been ready before, so that it is not still initializing."""
    if before.status == TRUE or before.reason == ServiceReason.ZERO_ENDPOINTS:
        return True
    return before.reason in _SPECIAL and bool(inputs.active)


def _not_ready(service: RayService, reason: ServiceReason, message: str, now: datetime) -> tuple[Condition, ...]:
    return ConditionWriter(service, now).set(ServiceCondition.READY, False, reason, message).done()
