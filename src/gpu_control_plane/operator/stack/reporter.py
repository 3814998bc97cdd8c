"""Writes the status of ClusterPolicies: at most once in a while, and only what differs.

Where NVIDIA's own CRD is installed, its schema drops the fields that are ours. The answer to the first write shows it;
from then on only those that it knows are written.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import StackCondition
from gpu_control_plane.api.nvidia.status import StackStatus, State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import Client, Condition, Key, Requeue, Runtime
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.pace import Pace
from gpu_control_plane.operator.charge import Charge
from gpu_control_plane.operator.stack.events import tell_rival, tell_status, tell_taken_over, tell_unknown
from gpu_control_plane.operator.stack.metrics import StackMetrics
from gpu_control_plane.operator.stack.policies import InForce
from gpu_control_plane.operator.stack.status import Picture, ignored_status, rival_condition, status_of

_PAUSE: Final = 1.0
_OURS: Final = frozenset(str(kind) for kind in StackCondition)
_RIVAL: Final = StackCondition.OTHER_OPERATOR_ACTIVE
_UNKNOWN: Final = StackCondition.UNKNOWN_FIELDS


class Reporter:
    """The controller that reports."""

    def __init__(
        self,
        runtime: Runtime,
        charge: Charge,
        picture: Callable[[InForce], Picture | None],
        now: Callable[[], datetime],
    ) -> None:
        self._runtime = runtime
        self._charge = charge
        self._picture = picture
        self._clock = now
        self._metrics = StackMetrics(runtime.metrics.registry)
        self._pace = Pace(_PAUSE)
        self._bare = False
        self._controller = runtime.controller("stack-status", self._report, workers=1)
        self._controller.watch(charge.policies)

    def wake(self) -> None:
        for policy in self._charge.policies:
            self._controller.enqueue(policy.key)

    async def _report(self, key: Key) -> Requeue | None:
        policy = self._charge.policies.at(key)
        if policy is None or policy.deleting:
            self._pace.forget(key)
            return None
        if later := self._pace.wait(key):
            return later
        desired = self._desired(policy)
        if desired is None or not status_differs(policy.status, desired):
            return None
        self._pace.mark(key)
        try:
            written = await write_status(self._runtime.client, policy, desired)
        except NotFound:
            return None
        self._tell(policy, desired)
        if desired.states and not written.status.states:
            self._bare = True
        return None

    def _desired(self, policy: StoredClusterPolicy) -> StackStatus | None:
        """What the status should be; None while that cannot be said."""
        now = self._clock().replace(microsecond=0)
        generation, held = policy.metadata.generation, policy.status
        if rival := self._charge.rival.active():
            return beside(held, rival_condition(held.conditions, rival, generation, now))
        found = self._charge.in_force()
        if found is None or found.policy.name != policy.name:
            return ignored_status(held, found.policy.name if found else "", held.namespace, generation, now)
        picture = self._picture(found)
        status = status_of(held, picture) if picture is not None else None
        if picture is None or status is None:
            return None
        self._metrics.observe(status, picture)
        if self._bare:
            return StackStatus(state=status.state, namespace=status.namespace, conditions=status.conditions)
        return status

    def _tell(self, policy: StoredClusterPolicy, status: StackStatus) -> None:
        events, held = self._runtime.events, policy.status
        before, after = find(held.conditions, _RIVAL), find(status.conditions, _RIVAL)
        if after is not None:
            if before is None:
                tell_rival(events, policy, after.message)
            return
        if before is not None:
            tell_taken_over(events, policy)
        tell_status(events, policy, held, status)
        known, unknown = find(held.conditions, _UNKNOWN), find(status.conditions, _UNKNOWN)
        if unknown is not None and (known is None or known.message != unknown.message):
            tell_unknown(events, policy, unknown.message)


def beside(held: StackStatus, added: Condition) -> StackStatus:
    """A status of somebody else's with one condition of ours. One without a state would be refused."""
    others = tuple(item for item in held.conditions if item.type != added.type)
    return msgspec.structs.replace(held, state=held.state or State.NOT_READY, conditions=(*others, added))


def status_differs(held: StackStatus, desired: StackStatus) -> bool:
    """Whether anything but the order of conditions is another; conditions of others are theirs."""
    before = {item.type: item for item in held.conditions if item.type in _OURS}
    after = {item.type: item for item in desired.conditions if item.type in _OURS}
    bare = msgspec.structs.replace
    return before != after or bare(held, conditions=()) != bare(desired, conditions=())


async def write_status[T: StoredClusterPolicy | StoredNVIDIADriver](client: Client, held: T, desired: StackStatus) -> T:
    """Write a status whole, at the version it was decided on, but for the conditions of others.

    A merge patch, since the other product's CRD has no keys by which apply could tell conditions apart.
    """
    strangers = [item for item in held.status.conditions if item.type not in _OURS]
    body = msgspec.to_builtins(msgspec.structs.replace(desired, conditions=(*strangers, *_ours(desired))))
    gone = {name: None for name in msgspec.to_builtins(held.status) if name not in body}
    return await client.patch(
        type(held),
        held.name,
        {"status": {**gone, **body}},
        resource_version=held.metadata.resource_version,
        subresource="status",
    )


def _ours(status: StackStatus) -> list[Condition]:
    return [item for item in status.conditions if item.type in _OURS]
