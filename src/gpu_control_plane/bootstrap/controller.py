"""Bootstrap as a controller: one GPUNodeState in, its conditions out. One write for each change, for all of them."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.bootstrap.events import tell_readiness
from gpu_control_plane.bootstrap.metrics import BootstrapMetrics
from gpu_control_plane.kube import Condition, Key, Runtime
from gpu_control_plane.kube.times import utc_now

MANAGER: Final = "gpu-bootstrap"


class _Conditions(msgspec.Struct):
    conditions: tuple[Condition, ...]


class _Body(msgspec.Struct):
    """The fields of a GPUNodeState that bootstrap owns."""

    status: _Conditions


def build(runtime: Runtime, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add bootstrap to a process."""
    states = runtime.cache(GPUNodeState)
    BootstrapMetrics(runtime.metrics.registry).follow(states)
    hand = runtime.applier(MANAGER)

    async def reconcile(key: Key) -> None:
        state = states.at(key)
        if state is None or state.deleting:
            return
        conditions = decide(state, now())
        if not conditions:
            return
        written = await hand.apply(
            GPUNodeState, state.name, _Body(_Conditions(conditions)), state, subresource="status"
        )
        if written is not state:
            tell_readiness(runtime.events, state, written)

    runtime.controller("bootstrap", reconcile).watch(states, when=_matters)


def _matters(old: GPUNodeState | None, new: GPUNodeState | None) -> bool:
    """Everything but the orders and most of the plugin's answers, which are most of the traffic."""
    if old is None or new is None:
        return True
    return _read(old) != _read(new)


def _read(state: GPUNodeState) -> tuple[object, ...]:
    status = state.status
    conflicts = status.plugin.conflicts if status.plugin is not None else ()
    return status.driver, status.toolkit, status.monitoring, status.validation, status.conditions, conflicts
