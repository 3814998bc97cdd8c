"""One moment of a node as bootstrap sees it, and what it remembers of the moments before."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.kube import Condition
from gpu_control_plane.rules.managed_nodes import ManagedNodes


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient bootstrap is, and with which nodes. A restart of a pod must not move a condition; a loss must."""

    loss_after: timedelta = timedelta(seconds=60)
    """How long something may be away before it counts as lost."""
    return_after: timedelta = timedelta(seconds=30)
    """How long it has to work before a loss is taken back: something that crashes again and again is lost."""
    managed: ManagedNodes = ManagedNodes()


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What the API does not tell: when something was first missed. Forgetting it only delays."""

    had: frozenset[Operand] = frozenset()
    """The programs that the node had when it was last looked at."""
    noticed: Mapping[str, datetime] = {}
    """Since when each doubt has lasted."""


NOTHING: Final = Remembered()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the conditions of a node rest on."""

    state: GPUNodeState
    node: Node | None = None
    pods: tuple[Pod, ...] = ()
    """Programs of this node."""
    expected: frozenset[Operand] = frozenset()
    """Programs of ours that run anywhere, so that a GPU node without one lacks it."""
    report_observed: bool = True
    """Whether inventory has taken the latest report of the node into its status."""
    remembered: Remembered = NOTHING
    now: datetime

    @property
    def held(self) -> tuple[Condition, ...]:
        return self.state.status.conditions

    @property
    def name(self) -> str:
        return self.state.name
