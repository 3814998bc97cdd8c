"""Computes the status of each ClusterPolicy, and records Events and metrics when it changes."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from gpu_control_plane.api.nvidia.names import StackCondition
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Runtime, Signal
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.cluster_policy import ParsedPolicy, oldest_policy
from gpu_control_plane.operator.stack.events import (
    record_other_operator_active,
    record_status_change,
    record_taken_over,
)
from gpu_control_plane.operator.stack.metrics import StackMetrics
from gpu_control_plane.operator.stack.status import (
    PolicyStatusInput,
    ignored_status,
    other_operator_condition,
    status_of,
)
from gpu_control_plane.operator.status_writer import StatusWriter, with_condition

_OTHER_OPERATOR: Final = StackCondition.OTHER_OPERATOR_ACTIVE


class PolicyStatusReporter:
    """Reports on ClusterPolicies."""

    def __init__(
        self,
        runtime: Runtime,
        active_policy: ActivePolicy,
        status_input: Callable[[ParsedPolicy], PolicyStatusInput | None],
        now: Callable[[], datetime],
        signals: Iterable[Signal],
    ) -> None:
        self._events = runtime.events
        self._active_policy = active_policy
        self._status_input = status_input
        self._clock = now
        self._metrics = StackMetrics(runtime.metrics.registry)
        StatusWriter(
            runtime,
            "stack-status",
            active_policy.policies,
            desired=self._desired,
            record=self._record,
            signals=signals,
        )
        active_policy.policies.on_change(self._policy_changed)

    def _policy_changed(self, _old: StoredClusterPolicy | None, _new: StoredClusterPolicy | None) -> None:
        """The last policy may be deleted while another replica leads; this one must not show old numbers when it leads
        again."""
        if oldest_policy(self._active_policy.policies) is None:
            self._metrics.forget()

    def _desired(self, policy: StoredClusterPolicy) -> StackStatus | None:
        """What the status should be; None while that is not known."""
        now = self._clock().replace(microsecond=0)
        generation, held = policy.metadata.generation, policy.status
        if holder := self._active_policy.nvidia_lease.active():
            self._metrics.forget()
            return with_condition(held, other_operator_condition(held.conditions, holder, generation, now))
        found = self._active_policy.current()
        if found is None or found.policy.name != policy.name:
            return ignored_status(held, found.policy.name if found else "", held.namespace, generation, now)
        observed = self._status_input(found)
        status = status_of(held, observed) if observed is not None else None
        if observed is None or status is None:
            return None
        self._metrics.observe(status, observed)
        return status

    def _record(self, policy: StoredClusterPolicy, status: StackStatus) -> None:
        events, held = self._events, policy.status
        before, after = find(held.conditions, _OTHER_OPERATOR), find(status.conditions, _OTHER_OPERATOR)
        if after is not None:
            if before is None:
                record_other_operator_active(events, policy, after.message)
            return
        if before is not None:
            record_taken_over(events, policy)
        record_status_change(events, policy, held, status)
