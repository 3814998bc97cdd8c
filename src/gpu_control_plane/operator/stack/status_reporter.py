"""What the status of each ClusterPolicy should be, and who hears of it."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpu_control_plane.api.nvidia.names import StackCondition
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Runtime
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.operator.active_policy import Charge
from gpu_control_plane.operator.cluster_policy import InForce, winner
from gpu_control_plane.operator.stack.events import tell_rival, tell_status, tell_taken_over
from gpu_control_plane.operator.stack.metrics import StackMetrics
from gpu_control_plane.operator.stack.status import Picture, ignored_status, rival_condition, status_of
from gpu_control_plane.operator.status_writer import StatusReporter, beside

_RIVAL: Final = StackCondition.OTHER_OPERATOR_ACTIVE


class Reporter:
    """Reports on ClusterPolicies."""

    def __init__(
        self,
        runtime: Runtime,
        charge: Charge,
        picture: Callable[[InForce], Picture | None],
        now: Callable[[], datetime],
    ) -> None:
        self._events = runtime.events
        self._charge = charge
        self._picture = picture
        self._clock = now
        self._metrics = StackMetrics(runtime.metrics.registry)
        reporter = StatusReporter(runtime, "stack-status", charge.policies, self._desired, self._tell)
        self.wake = reporter.wake
        charge.policies.on_change(self._policy_changed)

    def _policy_changed(self, _old: StoredClusterPolicy | None, _new: StoredClusterPolicy | None) -> None:
        """The last policy may go while another replica leads: who leads again must not show how it was."""
        if winner(self._charge.policies) is None:
            self._metrics.forget()

    def _desired(self, policy: StoredClusterPolicy) -> StackStatus | None:
        """What the status should be; None while that cannot be said."""
        now = self._clock().replace(microsecond=0)
        generation, held = policy.metadata.generation, policy.status
        if rival := self._charge.rival.active():
            self._metrics.forget()
            return beside(held, rival_condition(held.conditions, rival, generation, now))
        found = self._charge.in_force()
        if found is None or found.policy.name != policy.name:
            return ignored_status(held, found.policy.name if found else "", held.namespace, generation, now)
        picture = self._picture(found)
        status = status_of(held, picture) if picture is not None else None
        if picture is None or status is None:
            return None
        self._metrics.observe(status, picture)
        return status

    def _tell(self, policy: StoredClusterPolicy, status: StackStatus) -> None:
        events, held = self._events, policy.status
        before, after = find(held.conditions, _RIVAL), find(status.conditions, _RIVAL)
        if after is not None:
            if before is None:
                tell_rival(events, policy, after.message)
            return
        if before is not None:
            tell_taken_over(events, policy)
        tell_status(events, policy, held, status)
