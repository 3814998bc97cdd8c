"""Writes the statuses of ClusterPolicies and NVIDIADrivers: at most once in a while for each, and only what differs.

Where NVIDIA's own CRD is installed, its schema drops the fields that are ours, and the answer to a write shows it. From
then on only what it keeps is compared; all is sent as before, so that the first write after our CRD has come shows it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.nvidia.names import StackCondition
from gpu_control_plane.api.nvidia.status import StackStatus, State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import Cache, Client, Condition, Key, Requeue, Runtime
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.rate_limit import RateLimit

_PAUSE: Final = 1.0
_OURS: Final = frozenset(str(kind) for kind in StackCondition)


class StatusReporter[T: StoredClusterPolicy | StoredNVIDIADriver]:
    """The controller that keeps the statuses of one kind. `desired` says what one should be, None while nobody can say;
    `tell` is called with every one that was written."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        stored: Cache[T],
        desired: Callable[[T], StackStatus | None],
        tell: Callable[[T, StackStatus], None],
    ) -> None:
        self._client = runtime.client
        self._stored = stored
        self._desired = desired
        self._tell = tell
        self._pace = RateLimit(_PAUSE)
        self._bare = False
        self._told: dict[Key, StackStatus] = {}
        self._controller = runtime.controller(name, self._report, workers=1)
        self._controller.watch(stored)
        runtime.on_lead(self._told.clear)

    def wake(self) -> None:
        """Something changed that a status may tell: a DaemonSet, a pod, an upgrade, the rival."""
        for item in self._stored:
            self._controller.enqueue(item.key)

    async def _report(self, key: Key) -> Requeue | None:
        held = self._stored.at(key)
        if held is None or held.deleting:
            self._pace.forget(key)
            self._told.pop(key, None)
            return None
        if later := self._pace.wait(key):
            return later
        desired = self._desired(held)
        if desired is None or not self._differs(held.status, desired):
            return None
        self._pace.mark(key)
        try:
            written = await write_status(self._client, held, desired)
        except NotFound:
            return None
        if desired.states:
            self._bare = not written.status.states
        known = last_told(held.status, self._told.get(key), desired) if self._bare else held.status
        self._told[key] = desired
        self._tell(msgspec.structs.replace(held, status=known), desired)
        return None

    def _differs(self, held: StackStatus, desired: StackStatus) -> bool:
        return status_differs(_bare(held), _bare(desired)) if self._bare else status_differs(held, desired)


def last_told(held: StackStatus, told: StackStatus | None, desired: StackStatus) -> StackStatus:
    """What people know where the schema keeps no states: what this process told last. Before it has told anything, that
    each state of the stack is as it is now: a restart is no news. Nobody knows anything of a status without a state."""
    if told is not None:
        return told
    return msgspec.structs.replace(held, states=desired.states) if held.state else held


def beside(held: StackStatus, added: Condition) -> StackStatus:
    """A status of somebody else's with one condition of ours. One without a state would be refused."""
    others = tuple(item for item in held.conditions if item.type != added.type)
    return msgspec.structs.replace(held, state=held.state or State.NOT_READY, conditions=(*others, added))


def status_differs(held: StackStatus, desired: StackStatus) -> bool:
    """Whether anything but the order of conditions is another; conditions of others are theirs."""
    before = {item.type: item for item in held.conditions if item.type in _OURS}
    after = {item.type: item for item in desired.conditions if item.type in _OURS}
    without = msgspec.structs.replace
    return before != after or without(held, conditions=()) != without(desired, conditions=())


async def write_status[T: StoredClusterPolicy | StoredNVIDIADriver](client: Client, held: T, desired: StackStatus) -> T:
    """Write a status whole, at the version it was decided on, but for the conditions of others.

    A merge patch, since the other product's CRD has no keys by which apply could tell conditions apart.
    """
    strangers = (item for item in held.status.conditions if item.type not in _OURS)
    ours = (item for item in desired.conditions if item.type in _OURS)
    body = msgspec.to_builtins(msgspec.structs.replace(desired, conditions=(*strangers, *ours)))
    return await client.patch(
        type(held),
        held.name,
        {"status": replacing(msgspec.to_builtins(held.status), body)},
        resource_version=held.metadata.resource_version,
        subresource="status",
    )


def replacing(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that leaves nothing of what is held: a count that has become 0 is not written, and would stay."""
    gone = {name: None for name in held if name not in wanted}
    parts = {
        name: replacing(held[name], value) if isinstance(value, dict) and isinstance(held.get(name), dict) else value
        for name, value in wanted.items()
    }
    return {**gone, **parts}


def _bare(status: StackStatus) -> StackStatus:
    """What NVIDIA's schema keeps of a status."""
    return StackStatus(state=status.state, namespace=status.namespace, conditions=status.conditions)
