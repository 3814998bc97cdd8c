"""Metrics, feature labels and checks: who provides them for a node, and whether anybody does."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.gpunodestate import MonitoringSource
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.findings import Finding
from gpu_control_plane.bootstrap.operands import (
    EXPORTERS,
    HOST_ENGINES,
    LABELLERS,
    LABELLING_OPTION,
    VALIDATORS,
    Operand,
)
from gpu_control_plane.bootstrap.snapshot import Settings, Snapshot
from gpu_control_plane.bootstrap.standing import Standing, Standings
from gpu_control_plane.kube.conditions import is_true

STALE: Final = "labels are stale"
"""The doubt about labels that do not say what the node reports: whoever writes them may be about to."""

_PRODUCT: Final = "nvidia.com/gpu.product"
_COUNT: Final = "nvidia.com/gpu.count"
_DRIVER: Final = "nvidia.com/cuda.driver-version.full"


class LabelView(msgspec.Struct, frozen=True):
    """The finding about labels, and whether it is to be looked at again."""

    finding: Finding
    doubted: bool = False


def monitoring(seen: Snapshot, programs: Standings) -> Finding:
    kind = NodeCondition.MONITORING_MISSING
    sources = exporters(seen, programs)
    working = [source for source in sources if _broken(source, programs) is None]
    if working:
        return Finding(kind, False, Reason.MONITORING_FOUND, f"Metrics come from {_whom(working[0])}.")
    if sources:
        broken = _broken(sources[0], programs) or sources[0]
        return Finding(kind, True, Reason.MONITORING_NOT_READY, f"Nothing exports metrics. {broken.trouble}")
    message = "The node reports no exporter of metrics."
    if seen.state.status.driver is None:
        message += " The agent exports them once there is a driver."
    else:
        message += " Its agent exports them unless told not to; else switch `bootstrap.dcgmExporter.enabled` on."
    return Finding(kind, True, Reason.MONITORING_NOT_FOUND, message)


def exporters(seen: Snapshot, programs: Standings) -> list[Standing]:
    """Everything that exports metrics of the node's cards, the agent first."""
    told = seen.state.status.monitoring
    own = [_agent(programs)] if told is not None and told.source is MonitoringSource.AGENT else []
    return [*own, *programs.among(EXPORTERS)]


def validators(seen: Snapshot, programs: Standings) -> list[Standing]:
    """Everything that checks the node, the agent first: it takes its answer back when it is told not to."""
    own = [_agent(programs)] if seen.state.status.validation is not None else []
    return [*own, *programs.among(VALIDATORS)]


def labellers(programs: Standings) -> list[Standing]:
    """Everything that is told to label the node, the agent first."""
    agent = programs.get(Operand.AGENT)
    args = agent.pod.spec.containers if agent is not None and agent.pod is not None else ()
    labels = any(LABELLING_OPTION in container.args for container in args)
    return [*([agent] if agent is not None and labels else []), *programs.among(LABELLERS)]


def feature_labels(seen: Snapshot, programs: Standings, settings: Settings) -> LabelView:
    """Whether the Node carries true labels about its cards. By whom they are written matters only if they are not."""
    kind = NodeCondition.GFD_READY
    labels = seen.node.metadata.labels if seen.node is not None else {}
    sources = labellers(programs)
    lost = next((source for source in sources if source.lost and source.operand is not Operand.AGENT), None)
    wrong = _wrong(seen, labels) if _PRODUCT in labels else None
    if _PRODUCT in labels and wrong is None and (lost is None or len(sources) > 1):
        return LabelView(Finding(kind, True, Reason.FEATURE_LABELS_FOUND, "The labels say what the node reports."))
    if lost is not None:
        return LabelView(Finding(kind, False, Reason.GFD_NOT_READY, lost.trouble))
    if wrong is None:
        return _protected(seen, settings, Finding(kind, False, Reason.FEATURE_LABELS_MISSING, _how_to(sources)))
    message = f"{wrong} {_who_should(sources)}"
    return _protected(seen, settings, Finding(kind, False, Reason.FEATURE_LABELS_STALE, message))


def _protected(seen: Snapshot, settings: Settings, finding: Finding) -> LabelView:
    """Labels are written a moment after the report they follow: what was true stays true for that long."""
    since = seen.remembered.noticed.get(STALE, seen.now)
    if is_true(seen.held, finding.kind) and seen.now - since < settings.loss_after:
        message = "The labels say what the node reports."
        return LabelView(Finding(finding.kind, True, Reason.FEATURE_LABELS_FOUND, message), doubted=True)
    return LabelView(finding)


def _agent(programs: Standings) -> Standing:
    """The agent, also where it is no pod."""
    return programs.get(Operand.AGENT) or Standing(operand=Operand.AGENT)


def _broken(source: Standing, programs: Standings) -> Standing | None:
    """What is wrong with a source of metrics: itself, or the engine that it asks."""
    if source.lost:
        return source
    engine = programs.get(HOST_ENGINES[source.operand]) if source.operand in HOST_ENGINES else None
    return engine if engine is not None and engine.lost else None


def _whom(source: Standing) -> str:
    return "the agent" if source.operand is Operand.AGENT else f"the {source.operand} pod"


def _wrong(seen: Snapshot, labels: Mapping[str, str]) -> str | None:
    """What the labels say that the node does not."""
    status = seen.state.status
    said, driver = labels.get(_DRIVER), status.driver
    if said is not None and driver is not None and said != driver.version:
        return f"The label {_DRIVER} says {said}, the node reports driver {driver.version}."
    products = Counter(_spelled(card.product) for card in status.devices if card.product)
    product = labels[_PRODUCT].removesuffix("-SHARED")
    if not products or "-MIG-" in product:
        return None
    if product not in products:
        return f"The label {_PRODUCT} says {product}, the node reports {', '.join(sorted(products))}."
    said = labels.get(_COUNT, str(products[product]))
    if said != str(products[product]):
        return f"The label {_COUNT} says {said}, the node reports {products[product]}."
    return None


def _spelled(product: str) -> str:
    """A model as a label has it."""
    return re.sub(r"[^A-Za-z0-9._-]", "", re.sub(r"\s+", "-", product.strip()))[:63].strip("._-")


def _how_to(sources: list[Standing]) -> str:
    if sources:
        return f"The Node has no labels about its cards. {_who_should(sources)}"
    return (
        "The Node has no labels about its cards. Pools do not need them. To select nodes by `nvidia.com/gpu.product` "
        "and its kin, install the chart with `agent.labels=true`."
    )


def _who_should(sources: list[Standing]) -> str:
    if not sources:
        return "Nothing of ours keeps them: remove them, or have the agent do it with `agent.labels=true`."
    pod = sources[0].pod
    if pod is None:
        return sources[0].trouble
    return f"They are written by {_whom(sources[0])}: `kubectl -n {pod.metadata.namespace} logs {pod.name}`."
