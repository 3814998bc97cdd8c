"""Which labels nodes would get: decided as in production, repeatedly, until nothing changes any more. Pure.

Once is not enough, since an NVIDIADriver can own a node only after it was labelled as a GPU node.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.driver_pods import is_driver
from gpu_control_plane.operator.drivers.owner import Ownership, ParsedDriver, ownership_of
from gpu_control_plane.operator.drivers.ownership_index import parse_driver, upgrades_automatically
from gpu_control_plane.operator.labelling.agent_report import agent_report
from gpu_control_plane.operator.labelling.decide import DriverOwner, LabelSpec, NodeInput, decide, label_spec_of
from gpu_control_plane.operator.migration.installation import Installation

_MOST_ROUNDS: Final = 5


class RelabelledNodes(msgspec.Struct, frozen=True):
    """The nodes with the labels that they would get."""

    nodes: tuple[Node, ...]
    problem: str = ""
    """Why no node changes its NVIDIADriver."""


class KeyChange(msgspec.Struct, frozen=True, rename="camel"):
    """The same change of a label or an annotation on several nodes; None stands for its absence."""

    key: str
    before: str | None
    after: str | None
    nodes: tuple[str, ...]


def relabel(found: Installation, spec: ClusterPolicySpec) -> RelabelledNodes:
    """All nodes with the labels and annotations that this operator would give them."""
    label_spec, drivers = label_spec_of(spec), [parse_driver(stored) for stored in found.drivers]
    states = {state.name: state for state in found.states}
    with_driver = {pod.spec.node_name for pod in found.driver_pods if is_driver(pod)}
    nodes, ownership = found.nodes, Ownership()
    for _ in range(_MOST_ROUNDS):
        if label_spec.driver_crd:
            ownership = ownership_of(drivers, nodes)
        after = tuple(
            _relabelled(
                NodeInput(
                    node=node,
                    report=agent_report(states.get(node.name)),
                    driver_pod=node.name in with_driver,
                    owner=_owner(node, ownership, drivers) if label_spec.driver_crd else None,
                ),
                label_spec,
            )
            for node in nodes
        )
        if after == nodes:
            break
        nodes = after
    return RelabelledNodes(nodes, ownership.problem.message if ownership.problem is not None else "")


def key_changes(
    before: Sequence[Node], after: Sequence[Node], keys: Callable[[Node], Mapping[str, str]]
) -> tuple[KeyChange, ...]:
    """The differences in labels or annotations of the same nodes; a change that several nodes share is listed once."""
    nodes: dict[tuple[str, str | None, str | None], list[str]] = {}
    for old, new in zip(before, after, strict=True):
        held, made = keys(old), keys(new)
        for key in {*held, *made}:
            if held.get(key) != made.get(key):
                nodes.setdefault((key, held.get(key), made.get(key)), []).append(old.name)
    return tuple(KeyChange(*change, tuple(sorted(nodes[change]))) for change in sorted(nodes, key=str))


def _owner(node: Node, ownership: Ownership, drivers: Sequence[ParsedDriver]) -> DriverOwner | None:
    if ownership.problem is not None:
        return None
    name = ownership.owners.get(node.name)
    spec = next((driver.spec for driver in drivers if driver.name == name), None)
    return DriverOwner(name, upgrades=upgrades_automatically(spec))


def _relabelled(node_input: NodeInput, label_spec: LabelSpec) -> Node:
    patch, node = decide(node_input, label_spec), node_input.node
    if not patch:
        return node
    meta = msgspec.structs.replace(
        node.metadata,
        labels=_patched(node.metadata.labels, patch.labels),
        annotations=_patched(node.metadata.annotations, patch.annotations),
    )
    return msgspec.structs.replace(node, metadata=meta)


def _patched(held: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**held, **changes}.items() if value is not None}
