"""Computes the status of each NVIDIADriver, and records Events when it changes."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from gpu_control_plane.api.nvidia.names import StackCondition, StackEvent, StackReason
from gpu_control_plane.api.nvidia.status import StackStatus, UpgradeReport
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.kube import EventRecorder, Runtime, Signal
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.cluster_policy import uses_driver_crd
from gpu_control_plane.operator.drivers.controller import DriverResult, DriversController
from gpu_control_plane.operator.drivers.status import DriverStatusInput, driver_status
from gpu_control_plane.operator.stack.daemonset_readiness import DaemonSetReadiness, tolerations_of
from gpu_control_plane.operator.stack.events import record_status_change
from gpu_control_plane.operator.stack.readiness import Readiness
from gpu_control_plane.operator.stack.status import other_operator_condition
from gpu_control_plane.operator.status_writer import StatusWriter, with_condition


class DriverStatusReporter:
    """Reports on NVIDIADrivers. `changed` are signals of the parts beside them whose state the status contains."""

    def __init__(
        self, runtime: Runtime, active_policy: ActivePolicy, drivers: DriversController, readiness: DaemonSetReadiness,
        *, namespace: str, now: Callable[[], datetime],
        upgrade: Callable[[str, UpgradeReport | None], UpgradeReport | None], changed: Iterable[Signal],
    ) -> None:  # fmt: skip
        self._active_policy = active_policy
        self._drivers = drivers
        self._readiness = readiness
        self._namespace = namespace
        self._upgrade = upgrade
        self._clock = now
        signals = (readiness.changed, active_policy.changed, drivers.reconciled, *changed)
        record = partial(record_driver_status, runtime.events)
        StatusWriter(runtime, "drivers-status", drivers.stored, desired=self._desired, record=record, signals=signals)

    def _desired(self, stored: StoredNVIDIADriver) -> StackStatus | None:
        """What the status should be; None while that is not known."""
        now, generation = self._clock().replace(microsecond=0), stored.metadata.generation
        if holder := self._active_policy.nvidia_lease.active():
            condition = other_operator_condition(stored.status.conditions, holder, generation, now)
            return with_condition(stored.status, condition)
        found = self._active_policy.current()
        if found is not None and found.spec is None:
            return None
        asked_for = uses_driver_crd(found.spec if found is not None else None)
        if asked_for and stored.name not in self._drivers.results:
            return None
        return driver_status(stored.status, self._status_input(stored, asked_for=asked_for))

    def _status_input(self, stored: StoredNVIDIADriver, *, asked_for: bool) -> DriverStatusInput:
        generation = stored.metadata.generation
        result = self._drivers.results.get(stored.name) or DriverResult(generation=0)
        return DriverStatusInput(
            generation=generation,
            namespace=self._namespace,
            asked_for=asked_for,
            problem=result.problem,
            readiness=self._readiness_of(result),
            unidentified=result.unidentified,
            unlabelled=self._drivers.index.unlabelled_nodes(stored.name),
            nodes=result.nodes,
            converged=result.generation == generation,
            upgrade=self._upgrade(stored.name, stored.status.upgrade),
            unknown=_unknown_fields(stored),
            now=self._clock().replace(microsecond=0),
        )

    def _readiness_of(self, result: DriverResult) -> dict[str, Readiness]:
        return {
            manifest["metadata"]["name"]: self._readiness.of(
                manifest["metadata"]["name"], tolerations_of(manifest["spec"]["template"]["spec"])
            )
            for manifest in result.daemonsets
        }


def record_driver_status(recorder: EventRecorder, driver: StoredNVIDIADriver, new: StackStatus) -> None:
    """Record how a status has changed: readiness, conflicts, what cannot be carried out, fields without effect."""
    old = driver.status
    record_status_change(recorder, driver, old, new)
    before, after = (find(status.conditions, StackCondition.ERROR) for status in (old, new))
    if after is None:
        return
    if after.reason == StackReason.CONFLICTING_NODE_SELECTOR and (before is None or before.reason != after.reason):
        recorder.warning(driver, StackEvent.CONFLICTING_NODE_SELECTOR, after.message)
    if after.reason == StackReason.RECONCILE_FAILED and (before is None or before.message != after.message):
        recorder.warning(driver, StackEvent.OPERAND_NOT_READY, after.message)


def _unknown_fields(stored: StoredNVIDIADriver) -> tuple[str, ...]:
    try:
        return stored.read().unknown
    except UnreadableSpec:
        return ()
