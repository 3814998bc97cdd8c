"""Metrics, feature labels and checks: which operands provide them for a node, and whether any of them works."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.gpunodestate import MonitoringSource
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.conditions import DesiredCondition
from gpu_control_plane.bootstrap.operand_status import OperandState, OperandStatus, OperandStatuses
from gpu_control_plane.bootstrap.operands import EXPORTERS, HOST_ENGINES, LABELLERS, VALIDATORS, Operand
from gpu_control_plane.bootstrap.snapshot import Awaited, Settings, Snapshot
from gpu_control_plane.kube.conditions import is_true

_PRODUCT: Final = "nvidia.com/gpu.product"
_COUNT: Final = "nvidia.com/gpu.count"
_DRIVER: Final = "nvidia.com/cuda.driver-version.full"
_CORRECT: Final = "The labels say what the node reports."


class FeatureLabels(msgspec.Struct, frozen=True):
    """The condition GFDReady, and whether it stands only because the labels may be about to follow the report."""

    condition: DesiredCondition
    awaited: bool = False


def monitoring(snapshot: Snapshot, operands: OperandStatuses) -> DesiredCondition:
    kind = NodeCondition.MONITORING_MISSING
    sources = exporters(snapshot, operands)
    working = [source for source in sources if _broken(source, operands) is None]
    if working:
        return DesiredCondition(kind, False, Reason.MONITORING_FOUND, f"Metrics come from {_name(working[0])}.")
    if sources:
        broken = _broken(sources[0], operands) or sources[0]
        return DesiredCondition(kind, True, Reason.MONITORING_NOT_READY, f"Nothing exports metrics. {broken.trouble}")
    message = "The node reports no exporter of metrics."
    if snapshot.state.status.driver is None:
        message += " The agent exports them once there is a driver."
    else:
        message += " Its agent exports them unless told not to; else switch `bootstrap.dcgmExporter.enabled` on."
    return DesiredCondition(kind, True, Reason.MONITORING_NOT_FOUND, message)


def exporters(snapshot: Snapshot, operands: OperandStatuses) -> list[OperandStatus]:
    """Everything that exports metrics of the node's cards, the agent first."""
    reported = snapshot.state.status.monitoring
    own = [_agent(operands)] if reported is not None and reported.source is MonitoringSource.AGENT else []
    return [*own, *operands.among(EXPORTERS)]


def validators(snapshot: Snapshot, operands: OperandStatuses) -> list[OperandStatus]:
    """Everything that checks the node, the agent first. An agent that does not check removes its results."""
    own = [_agent(operands)] if snapshot.state.status.validation is not None else []
    return [*own, *operands.among(VALIDATORS)]


def labellers(snapshot: Snapshot, operands: OperandStatuses) -> list[OperandStatus]:
    """Everything that labels the node, the agent first. An agent that does not say is taken for one that does not."""
    agent, functions = operands.get(Operand.AGENT), snapshot.state.status.agent
    labels = functions is not None and bool(functions.labels)
    return [*([agent] if agent is not None and labels else []), *operands.among(LABELLERS)]


def feature_labels(snapshot: Snapshot, operands: OperandStatuses, settings: Settings) -> FeatureLabels:
    """Whether the Node has labels about its cards that agree with the report. Who writes them matters only if they
    do not."""
    kind = NodeCondition.GFD_READY
    labels = snapshot.node.metadata.labels if snapshot.node is not None else {}
    sources = labellers(snapshot, operands)
    lost = next((source for source in sources if source.lost and source.operand is not Operand.AGENT), None)
    stale = _stale(snapshot, labels) if _PRODUCT in labels else None
    if _PRODUCT in labels and stale is None and (lost is None or len(sources) > 1):
        return FeatureLabels(DesiredCondition(kind, True, Reason.FEATURE_LABELS_FOUND, _CORRECT))
    if lost is not None:
        return FeatureLabels(DesiredCondition(kind, False, Reason.GFD_NOT_READY, lost.trouble))
    if stale is None:
        wrong = DesiredCondition(kind, False, Reason.FEATURE_LABELS_MISSING, _how_to_get_labels(sources))
    else:
        wrong = DesiredCondition(kind, False, Reason.FEATURE_LABELS_STALE, f"{stale} {_who_writes(sources)}")
    # Labels are written a moment after the report that they follow: what was correct stays so for as long.
    recent = snapshot.now - snapshot.awaited_since(Awaited.FEATURE_LABELS) < settings.loss_after
    if recent and is_true(snapshot.conditions, kind):
        return FeatureLabels(DesiredCondition(kind, True, Reason.FEATURE_LABELS_FOUND, _CORRECT), awaited=True)
    return FeatureLabels(wrong)


def _agent(operands: OperandStatuses) -> OperandStatus:
    """The agent, also where it is run by hand and has no Pod: then its reports prove that it works."""
    return operands.get(Operand.AGENT) or OperandStatus(operand=Operand.AGENT, state=OperandState.WORKING)


def _broken(source: OperandStatus, operands: OperandStatuses) -> OperandStatus | None:
    """What is lost of a source of metrics: itself, or the host engine that it reads from."""
    if source.lost:
        return source
    engine = operands.get(HOST_ENGINES[source.operand]) if source.operand in HOST_ENGINES else None
    return engine if engine is not None and engine.lost else None


def _name(source: OperandStatus) -> str:
    return "the agent" if source.operand is Operand.AGENT else f"the {source.operand} pod"


def _stale(snapshot: Snapshot, labels: Mapping[str, str]) -> str | None:
    """Where the labels differ from the report, if they do."""
    status = snapshot.state.status
    label, driver = labels.get(_DRIVER), status.driver
    if label is not None and driver is not None and label != driver.version:
        return f"The label {_DRIVER} says {label}, the node reports driver {driver.version}."
    products = Counter(_as_label(card.product) for card in status.devices if card.product)
    product = labels[_PRODUCT].removesuffix("-SHARED")
    if not products or "-MIG-" in product:
        return None
    if product not in products:
        return f"The label {_PRODUCT} says {product}, the node reports {', '.join(sorted(products))}."
    label = labels.get(_COUNT, str(products[product]))
    if label != str(products[product]):
        return f"The label {_COUNT} says {label}, the node reports {products[product]}."
    return None


def _as_label(product: str) -> str:
    """A model as NVIDIA's feature discovery writes it into a label."""
    return re.sub(r"[^A-Za-z0-9._-]", "", re.sub(r"\s+", "-", product.strip()))[:63].strip("._-")


def _how_to_get_labels(sources: list[OperandStatus]) -> str:
    if sources:
        return f"The Node has no labels about its cards. {_who_writes(sources)}"
    return (
        "The Node has no labels about its cards. Pools do not need them. To select nodes by `nvidia.com/gpu.product` "
        "and its kin, set `agent.labels` of the chart to `auto`."
    )


def _who_writes(sources: list[OperandStatus]) -> str:
    if not sources:
        return "Nothing of ours keeps them: remove them, or have the agent do it with `agent.labels=auto`."
    pod = sources[0].pod
    if pod is None:
        return sources[0].trouble
    return f"They are written by {_name(sources[0])}: `kubectl -n {pod.metadata.namespace} logs {pod.name}`."
