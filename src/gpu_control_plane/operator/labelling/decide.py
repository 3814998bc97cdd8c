"""Which labels and annotations a Node should have, by what the ClusterPolicy asks and what the node is. Pure.

The result is only the difference, so a node whose labels are right costs no write. Values that others set, such as
`paused-for-…` in a deploy label, are left alone.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.choices import SandboxMode, Workload
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.api.nvidia.names import AGENT, PRE_INSTALLED, TRUE, NodeAnnotation, NodeLabel
from gpu_control_plane.operator.cluster_policy import uses_driver_crd
from gpu_control_plane.operator.labelling.keys import (
    AGENT_KEYS,
    DEPLOY_KEYS,
    MIG_MANAGER,
    DeployLabels,
    deploy_labels_of,
    mig_capable,
    workload_of,
)
from gpu_control_plane.operator.node_facts import DEPLOY_DRIVER, container_runtime, has_card, without_pause

_FALSE: Final = "false"
_PRESENT: Final = NodeLabel.PRESENT.value
_OPERANDS: Final = NodeLabel.OPERANDS.value
_RUNTIME: Final = NodeLabel.RUNTIME.value
_OWNER: Final = NodeLabel.DRIVER_OWNER.value
_MIG_CONFIG: Final = NodeLabel.MIG_CONFIG.value
_UPGRADES: Final = NodeAnnotation.UPGRADE_ENABLED.value


class LabelSpec(msgspec.Struct, frozen=True):
    """What the active ClusterPolicy asks of the labels of nodes."""

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


class DriverOwner(msgspec.Struct, frozen=True):
    """The NVIDIADriver that should own a node, None for none, and whether that one upgrades drivers."""

    name: str | None
    upgrades: bool = False


class HostDriver(msgspec.Struct, frozen=True):
    """A driver that the host brings; `problem` says why it cannot be used, and is empty when it can."""

    version: str
    problem: str = ""


class AgentReport(msgspec.Struct, frozen=True):
    """What the node's agent reports that labels depend on."""

    host_driver: HostDriver | None = None
    driver_known: bool = False
    """Whether the agent has looked for a driver: only then does `host_driver=None` mean that the host brings none."""
    agent_plugin: bool = False
    """Whether the agent itself hands out the cards."""


NO_REPORT: Final = AgentReport()


class NodeInput(msgspec.Struct, frozen=True):
    """Everything about one node that the decision depends on."""

    node: Node
    report: AgentReport = NO_REPORT
    driver_pod: bool = False
    """A driver pod of the stack is on the node: the loaded driver is the pod's, even if the agent reports it as the
    host's."""
    owner: DriverOwner | None = None
    """None while the owner is not certain: the node keeps the one that it has."""


class LabelPatch(msgspec.Struct, frozen=True):
    """What to write: only differences, None to remove. False when there is nothing to write."""

    labels: dict[str, str | None]
    annotations: dict[str, str | None]
    reason: str

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


NO_CHANGE: Final = LabelPatch({}, {}, "")


def label_spec_of(spec: ClusterPolicySpec) -> LabelSpec:
    sandbox = on(spec.sandbox_workloads.enabled, absent=False)
    driver = on(spec.driver.enabled, absent=True)
    policy, layouts = spec.driver.upgrade_policy, spec.mig_manager.config
    return LabelSpec(
        sandbox=sandbox,
        default_workload=spec.sandbox_workloads.default_workload,
        mode=spec.sandbox_workloads.mode,
        mig_manager=on(spec.mig_manager.enabled, absent=True),
        mig_default=str(layouts.default) if layouts is not None else "",
        driver_enabled=driver,
        upgrades=driver and not sandbox and policy is not None and policy.auto_upgrade,
        driver_crd=uses_driver_crd(spec),
    )


def decide(node_input: NodeInput, spec: LabelSpec) -> LabelPatch:
    """The difference between the labels and annotations that a node has and those it should have."""
    held = node_input.node.metadata.labels
    if not has_card(held):
        return _without_card(node_input.node)
    labels: dict[str, str | None] = {}
    if held.get(_PRESENT) != TRUE:
        labels[_PRESENT] = TRUE
    _put(labels, held, _RUNTIME, container_runtime(node_input.node).value)
    if operands_disabled(held):
        _take(labels, held, DEPLOY_KEYS)
    else:
        _deploy(labels, held, node_input, spec)
    if spec.mig_manager and spec.mig_default and _MIG_CONFIG not in held and mig_capable(held):
        labels[_MIG_CONFIG] = spec.mig_default
    annotations = _ownership(labels, node_input, spec)
    if not labels and not annotations:
        return NO_CHANGE
    return LabelPatch(labels, annotations, _reason(held, labels))


def removal_patch(node: Node) -> LabelPatch:
    """Removes everything that this module writes. The workload type and the MIG layout that a person chose stay."""
    labels: dict[str, str | None] = {}
    _take(labels, node.metadata.labels, (_PRESENT, *_GPU_NODE_KEYS))
    annotations = _removed_upgrades(node)
    return LabelPatch(labels, annotations, "the software stack is gone") if labels or annotations else NO_CHANGE


def gets_driver(labels: Mapping[str, str], spec: LabelSpec) -> bool:
    """Whether a node with a card gets a driver container: not where the host or a person brings the driver, nor where
    no operand goes. A missing deploy label counts as set: labelling is about to write it."""
    if operands_disabled(labels) or DEPLOY_DRIVER not in _deploy_labels(labels, spec).wanted:
        return False
    return without_pause(labels.get(DEPLOY_DRIVER, "")) in ("", TRUE)


def operands_disabled(labels: Mapping[str, str]) -> bool:
    """Whether a person has switched the whole stack off on a node."""
    return labels.get(_OPERANDS) == _FALSE


def labelled_by_us(node: Node) -> bool:
    """Whether the node carries the label that only this operator writes. If so, the other labels of the stack were
    written by this operator, too, and not by NVIDIA's."""
    return _RUNTIME in node.metadata.labels


_GPU_NODE_KEYS: Final = (*DEPLOY_KEYS, _RUNTIME, _OWNER)


def _without_card(node: Node) -> LabelPatch:
    held = node.metadata.labels
    labels: dict[str, str | None] = {_PRESENT: _FALSE} if held.get(_PRESENT) == TRUE else {}
    _take(labels, held, _GPU_NODE_KEYS)
    annotations = _removed_upgrades(node)
    return LabelPatch(labels, annotations, "it has no card any more") if labels or annotations else NO_CHANGE


def _deploy(labels: dict[str, str | None], held: dict[str, str], node_input: NodeInput, spec: LabelSpec) -> None:
    deploy = _deploy_labels(held, spec)
    _take(labels, held, deploy.unwanted)
    served_by = AGENT if node_input.report.agent_plugin else TRUE
    for key in deploy.wanted:
        value = held.get(key, "")
        if key == DEPLOY_DRIVER:
            wanted = _driver(value, node_input, spec)
        elif value in _OUR_VALUES:
            wanted = served_by if key in AGENT_KEYS else TRUE
        else:
            wanted = value
        if wanted != value:
            labels[key] = wanted
    if deploy.mig:
        manager = held.get(MIG_MANAGER)
        if (manager in (TRUE, AGENT) and manager != served_by) or (manager is None and mig_capable(held)):
            labels[MIG_MANAGER] = served_by


def _deploy_labels(held: Mapping[str, str], spec: LabelSpec) -> DeployLabels:
    return deploy_labels_of(workload_of(held, spec.default_workload, sandbox=spec.sandbox), spec.mode)


_OUR_VALUES: Final = ("", TRUE, AGENT)
"""Values of a deploy label that this operator may replace; any other was set by another writer."""


def _driver(value: str, node_input: NodeInput, spec: LabelSpec) -> str:
    """The value of the driver's deploy label. A host that brings a driver gets no driver container, not even if its own
    cannot be used: a kernel can load only one."""
    if value not in ("", TRUE, PRE_INSTALLED):
        return value
    report = node_input.report
    if report.host_driver is not None and spec.driver_enabled and not node_input.driver_pod:
        return PRE_INSTALLED
    if report.host_driver is None and report.driver_known:
        return TRUE
    return value or TRUE


def _ownership(labels: dict[str, str | None], node_input: NodeInput, spec: LabelSpec) -> dict[str, str | None]:
    """Adds the label of the driver's owner to `labels`; returns the annotation that says whether the owner upgrades
    it."""
    node, owner = node_input.node, node_input.owner
    if not spec.driver_crd:
        name, upgrades = None, spec.upgrades
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


def _reason(held: dict[str, str], labels: dict[str, str | None]) -> str:
    if _PRESENT in labels:
        return "it has a card"
    if operands_disabled(held):
        return f"{_OPERANDS} is false"
    return "they differ from what the ClusterPolicy asks"
