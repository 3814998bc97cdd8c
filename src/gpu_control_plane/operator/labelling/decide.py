"""Which labels and annotations a Node should have, by what the ClusterPolicy asks and what the node is. Pure.

Only differences come out, so that a node that is right costs nothing. Words of others, such as `paused-for-…` in a
deploy label, are left alone.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.choices import SandboxMode, Workload
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.names import AGENT, PRE_INSTALLED, TRUE, NodeAnnotation, NodeLabel
from gpu_control_plane.operator.labelling.keys import (
    AGENT_KEYS,
    DEPLOY_KEYS,
    MIG_MANAGER,
    Plan,
    mig_capable,
    plan_of,
    workload_of,
)
from gpu_control_plane.operator.node_facts import DRIVER, before_pause, has_card, runtime_of

_FALSE: Final = "false"
_PRESENT: Final = NodeLabel.PRESENT.value
_OPERANDS: Final = NodeLabel.OPERANDS.value
_RUNTIME: Final = NodeLabel.RUNTIME.value
_OWNER: Final = NodeLabel.DRIVER_OWNER.value
_MIG_CONFIG: Final = NodeLabel.MIG_CONFIG.value
_UPGRADES: Final = NodeAnnotation.UPGRADE_ENABLED.value


class Wish(msgspec.Struct, frozen=True):
    """What the ClusterPolicy in force asks of the labels of nodes."""

    sandbox: bool
    default_workload: Workload
    mode: SandboxMode
    mig_manager: bool
    mig_default: str
    """The layout for nodes that name none, or empty to leave them alone."""
    driver_enabled: bool
    upgrades: bool
    """Whether the ClusterPolicy upgrades drivers; with `driver_crd` each NVIDIADriver says it for its own nodes."""
    driver_crd: bool
    """Whether NVIDIADrivers say which driver goes where."""


class OwnerWish(msgspec.Struct, frozen=True):
    """The NVIDIADriver that a node should belong to, None for none, and whether that one upgrades drivers."""

    name: str | None
    upgrades: bool = False


class HostDriver(msgspec.Struct, frozen=True):
    """A driver that the host brings; `problem` says why it will not do, and is empty when it will."""

    version: str
    problem: str = ""


class Report(msgspec.Struct, frozen=True):
    """What the node's agent says that matters here."""

    host_driver: HostDriver | None = None
    driver_known: bool = False
    """Whether it has looked for a driver: without that, no host driver means nothing."""
    agent_plugin: bool = False
    """Whether the agent itself hands out the cards."""


SILENT: Final = Report()


class Subject(msgspec.Struct, frozen=True):
    """Everything about one node that a decision depends on."""

    node: Node
    report: Report = SILENT
    driver_pod: bool = False
    """A driver pod of the stack is there: what is loaded is its driver, whatever the agent takes it for."""
    owner: OwnerWish | None = None
    """None: nobody can say at the moment, and the node keeps the owner that it has."""


class Change(msgspec.Struct, frozen=True):
    """What to write: only differences, None to remove. False when there is nothing to do."""

    labels: dict[str, str | None]
    annotations: dict[str, str | None]
    reason: str

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


NOTHING: Final = Change({}, {}, "")


def wish_of(spec: ClusterPolicySpec) -> Wish:
    sandbox = on(spec.sandbox_workloads.enabled, absent=False)
    driver = on(spec.driver.enabled, absent=True)
    policy, layouts = spec.driver.upgrade_policy, spec.mig_manager.config
    return Wish(
        sandbox=sandbox,
        default_workload=spec.sandbox_workloads.default_workload,
        mode=spec.sandbox_workloads.mode,
        mig_manager=on(spec.mig_manager.enabled, absent=True),
        mig_default=str(layouts.default) if layouts is not None else "",
        driver_enabled=driver,
        upgrades=driver and not sandbox and policy is not None and policy.auto_upgrade,
        driver_crd=on(spec.driver.use_nvidia_driver_crd, absent=False),
    )


def decide(subject: Subject, wish: Wish) -> Change:
    """What the labels and annotations of a node lack, or have too much of."""
    held = subject.node.metadata.labels
    if not has_card(held):
        return _without_card(subject.node)
    labels: dict[str, str | None] = {}
    if held.get(_PRESENT) != TRUE:
        labels[_PRESENT] = TRUE
    _put(labels, held, _RUNTIME, runtime_of(subject.node).value)
    if wants_no_operands(held):
        _take(labels, held, DEPLOY_KEYS)
    else:
        _deploy(labels, held, subject, wish)
    if wish.mig_manager and wish.mig_default and _MIG_CONFIG not in held and mig_capable(held):
        labels[_MIG_CONFIG] = wish.mig_default
    annotations = _ownership(labels, subject, wish)
    if not labels and not annotations:
        return NOTHING
    return Change(labels, annotations, _why(held, labels))


def cleanup(node: Node) -> Change:
    """Everything that this module writes comes off. A person's choice of what the node is for, and how its cards are
    divided, stays."""
    labels: dict[str, str | None] = {}
    _take(labels, node.metadata.labels, (_PRESENT, *_ON_CARDS))
    annotations = _removed_upgrades(node)
    return Change(labels, annotations, "the software stack is gone") if labels or annotations else NOTHING


def gets_driver(labels: Mapping[str, str], wish: Wish) -> bool:
    """Whether a driver container is meant for a node with a card: not where the host or a person brings the driver, nor
    where no operand goes. A deploy label that is missing will come, and counts as if it were there."""
    if wants_no_operands(labels) or DRIVER not in _plan(labels, wish).wanted:
        return False
    return before_pause(labels.get(DRIVER, "")) in ("", TRUE)


def wants_no_operands(labels: Mapping[str, str]) -> bool:
    """Whether a person keeps the whole stack away from a node."""
    return labels.get(_OPERANDS) == _FALSE


def managed(node: Node) -> bool:
    """Whether the node carries a label that nobody but this operator writes: the others beside it are ours, too, and
    not those of NVIDIA's operator."""
    return _RUNTIME in node.metadata.labels


_ON_CARDS: Final = (*DEPLOY_KEYS, _RUNTIME, _OWNER)


def _without_card(node: Node) -> Change:
    held = node.metadata.labels
    labels: dict[str, str | None] = {_PRESENT: _FALSE} if held.get(_PRESENT) == TRUE else {}
    _take(labels, held, _ON_CARDS)
    annotations = _removed_upgrades(node)
    return Change(labels, annotations, "it has no card any more") if labels or annotations else NOTHING


def _deploy(labels: dict[str, str | None], held: dict[str, str], subject: Subject, wish: Wish) -> None:
    plan = _plan(held, wish)
    _take(labels, held, plan.unwanted)
    doer = AGENT if subject.report.agent_plugin else TRUE
    for key in plan.wanted:
        value = held.get(key, "")
        if key == DRIVER:
            wanted = _driver(value, subject, wish)
        elif value in _DOERS:
            wanted = doer if key in AGENT_KEYS else TRUE
        else:
            wanted = value
        if wanted != value:
            labels[key] = wanted
    if plan.mig:
        manager = held.get(MIG_MANAGER)
        if (manager in (TRUE, AGENT) and manager != doer) or (manager is None and mig_capable(held)):
            labels[MIG_MANAGER] = doer


def _plan(held: Mapping[str, str], wish: Wish) -> Plan:
    return plan_of(workload_of(held, wish.default_workload, sandbox=wish.sandbox), wish.mode)


_DOERS: Final = ("", TRUE, AGENT)


def _driver(value: str, subject: Subject, wish: Wish) -> str:
    """A host that brings a driver gets no driver container, not even when its own is of no use: two cannot share a
    kernel."""
    if value not in ("", TRUE, PRE_INSTALLED):
        return value
    report = subject.report
    if report.host_driver is not None and wish.driver_enabled and not subject.driver_pod:
        return PRE_INSTALLED
    if report.host_driver is None and report.driver_known:
        return TRUE
    return value or TRUE


def _ownership(labels: dict[str, str | None], subject: Subject, wish: Wish) -> dict[str, str | None]:
    """The owner of the node's driver, put among the labels, and whether that one upgrades it."""
    node, owner = subject.node, subject.owner
    if not wish.driver_crd:
        name, upgrades = None, wish.upgrades
    elif owner is None:
        return {}
    else:
        name, upgrades = owner.name, owner.name is not None and owner.upgrades
    _put(labels, node.metadata.labels, _OWNER, name)
    if not upgrades:
        return _removed_upgrades(node)
    return {} if node.metadata.annotations.get(_UPGRADES) == TRUE else {_UPGRADES: TRUE}


def _removed_upgrades(node: Node) -> dict[str, str | None]:
    return {_UPGRADES: None} if _UPGRADES in node.metadata.annotations else {}


def _put(changes: dict[str, str | None], held: dict[str, str], key: str, value: str | None) -> None:
    if held.get(key) != value:
        changes[key] = value


def _take(changes: dict[str, str | None], held: dict[str, str], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key in held:
            changes[key] = None


def _why(held: dict[str, str], labels: dict[str, str | None]) -> str:
    if _PRESENT in labels:
        return "it has a card"
    if wants_no_operands(held):
        return f"{_OPERANDS} is false"
    return "they differ from what the ClusterPolicy asks"
