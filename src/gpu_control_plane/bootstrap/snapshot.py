"""Everything the conditions of a node rest on, and how long bootstrap waits."""

import enum
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.kube import Condition
from gpu_control_plane.kube.fields import about
from gpu_control_plane.rules.managed_nodes import ManagedNodes
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What bootstrap is given. Its waiting times are in docs/settings.md."""

    loss_after: Annotated[
        timedelta,
        about("How long an operand may be away, or a report not taken in, before conditions say that it is lost."),
    ] = timedelta(seconds=60)
    return_after: Annotated[
        timedelta,
        about("How long a lost operand must be ready before the loss is withdrawn: one that crashes again stays lost."),
    ] = timedelta(seconds=30)
    managed: ManagedNodes = ManagedNodes()
    trusted: TrustedNamespaces = TrustedNamespaces()
    """Where operands are believed."""


class Awaited(enum.Enum):
    """Something that is about to be written by another program, so that bootstrap waits before it concludes."""

    REPORT_OBSERVED = "inventory is about to take in the latest report"
    AGENT_POD = "the node is managed again, and its agent is about to come"
    FEATURE_LABELS = "the labels are about to follow the report"


class Timers(msgspec.Struct, frozen=True, kw_only=True):
    """When something was first noticed that the API records nowhere. Kept in memory: losing it only delays."""

    operands: frozenset[Operand] = frozenset()
    """The operands that had a Pod on the node when it was last looked at."""
    missing_since: Mapping[Operand, datetime] = {}
    """Since when each operand has had no Pod."""
    awaited_since: Mapping[Awaited, datetime] = {}


NO_TIMERS: Final = Timers()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    state: GPUNodeState
    node: Node | None = None
    pods: tuple[Pod, ...] = ()
    """Pods on this node that may be operands."""
    expected: frozenset[Operand] = frozenset()
    """Operands of ours that run on some node, so that a GPU node without one lacks it."""
    report_observed: bool = True
    """Whether inventory has taken the latest report of the node into its status."""
    timers: Timers = NO_TIMERS
    namespace: str = DEFAULT_NAMESPACE
    """Where our own programs run."""
    now: datetime

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that the node has."""
        return self.state.status.conditions

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def reachable(self) -> bool:
        """Whether the kubelet of the node answers. While it does not, every Pod of the node looks as if it were not
        ready."""
        return self.node is None or self.node.ready

    def awaited_since(self, awaited: Awaited) -> datetime:
        return self.timers.awaited_since.get(awaited, self.now)
