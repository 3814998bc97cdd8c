"""Writes the statuses of ClusterPolicies and NVIDIADrivers: at most once a second for each, and only what differs.

Where NVIDIA's own CRD is installed, its schema drops the fields that are ours; the answer to a write shows it. From
then on only what it keeps is compared. All fields are still sent, so that the first write after our CRD has been
installed shows that they are kept again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.nvidia.names import StackCondition
from gpu_control_plane.api.nvidia.status import StackStatus, State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import Cache, Client, Condition, Key, Requeue, Runtime, Signal
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.rate_limit import RateLimit

_INTERVAL_SECONDS: Final = 1.0
_OUR_CONDITIONS: Final = frozenset(str(kind) for kind in StackCondition)


class StatusWriter[T: StoredClusterPolicy | StoredNVIDIADriver]:
    """The controller that keeps the statuses of one kind. `desired` gives what one should be, None while that is not
    known; `record` is called with every one that was written. `signals` are fired by whatever else a status depends on:
    they wake the controller for all objects of the kind."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        stored: Cache[T],
        *,
        desired: Callable[[T], StackStatus | None],
        record: Callable[[T, StackStatus], None],
        signals: Iterable[Signal],
    ) -> None:
        self._client = runtime.client
        self._stored = stored
        self._desired = desired
        self._record = record
        self._rate_limit = RateLimit(_INTERVAL_SECONDS)
        self._nvidia_schema = False
        self._last_written: dict[Key, StackStatus] = {}
        controller = runtime.controller(name, self._reconcile, workers=1).watch(stored)
        for signal in signals:
            controller.watch(signal, lambda _fired: [item.key for item in stored])
        runtime.on_lead(self._last_written.clear)

    async def _reconcile(self, key: Key) -> Requeue | None:
        held = self._stored.at(key)
        if held is None or held.deleting:
            self._rate_limit.forget(key)
            self._last_written.pop(key, None)
            return None
        if later := self._rate_limit.wait(key):
            return later
        desired = self._desired(held)
        if desired is None or not self._differs(held.status, desired):
            return None
        self._rate_limit.mark(key)
        try:
            written = await write_status(self._client, held, desired)
        except NotFound:
            return None
        if desired.states:
            self._nvidia_schema = not written.status.states
        before = last_known(held.status, self._last_written.get(key), desired) if self._nvidia_schema else held.status
        self._last_written[key] = desired
        self._record(msgspec.structs.replace(held, status=before), desired)
        return None

    def _differs(self, held: StackStatus, desired: StackStatus) -> bool:
        if self._nvidia_schema:
            return status_differs(_nvidia_fields(held), _nvidia_fields(desired))
        return status_differs(held, desired)


def last_known(held: StackStatus, written: StackStatus | None, desired: StackStatus) -> StackStatus:
    """What to compare a new status with where the schema keeps no states: what this process wrote last.

    Before it has written anything, each state of the stack counts as being as it is now, so that a restart causes no
    Events. A status without `state` has never been written, so everything in it is new.
    """
    if written is not None:
        return written
    return msgspec.structs.replace(held, states=desired.states) if held.state else held


def with_condition(held: StackStatus, added: Condition) -> StackStatus:
    """A status that NVIDIA's operator wrote, with one condition of ours. The schema demands a `state`."""
    others = tuple(item for item in held.conditions if item.type != added.type)
    return msgspec.structs.replace(held, state=held.state or State.NOT_READY, conditions=(*others, added))


def status_differs(held: StackStatus, desired: StackStatus) -> bool:
    """Whether anything but the order of conditions differs; conditions of other writers do not count."""
    before = {item.type: item for item in held.conditions if item.type in _OUR_CONDITIONS}
    after = {item.type: item for item in desired.conditions if item.type in _OUR_CONDITIONS}
    without = msgspec.structs.replace
    return before != after or without(held, conditions=()) != without(desired, conditions=())


async def write_status[T: StoredClusterPolicy | StoredNVIDIADriver](client: Client, held: T, desired: StackStatus) -> T:
    """Write a whole status, at the version it was decided on; conditions of other writers stay.

    A merge patch, since NVIDIA's CRD has no list keys by which server-side apply could tell conditions apart.
    """
    others = (item for item in held.status.conditions if item.type not in _OUR_CONDITIONS)
    ours = (item for item in desired.conditions if item.type in _OUR_CONDITIONS)
    body = msgspec.to_builtins(msgspec.structs.replace(desired, conditions=(*others, *ours)))
    return await client.patch(
        type(held),
        held.name,
        {"status": replacement_patch(msgspec.to_builtins(held.status), body)},
        resource_version=held.metadata.resource_version,
        subresource="status",
    )


def replacement_patch(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that replaces all that is held. Without the explicit removals a count that has become 0 would stay:
    fields with their default value are not encoded."""
    removed = {name: None for name in held if name not in wanted}
    parts = {
        name: replacement_patch(held[name], value)
        if isinstance(value, dict) and isinstance(held.get(name), dict)
        else value
        for name, value in wanted.items()
    }
    return {**removed, **parts}


def _nvidia_fields(status: StackStatus) -> StackStatus:
    """What NVIDIA's schema keeps of a status."""
    return StackStatus(state=status.state, namespace=status.namespace, conditions=status.conditions)
