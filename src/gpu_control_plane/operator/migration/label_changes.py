"""How nodes would be labelled: decided as in production, again and again, until nothing changes any more. Pure.

One pass is not enough, since a node belongs to an NVIDIADriver only once it counts as a GPU node.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.drivers.owner import Driver, Ownership, owners
from gpu_control_plane.operator.drivers.ownership_index import driver_of, upgrades_itself
from gpu_control_plane.operator.labelling.agent_report import report_of
from gpu_control_plane.operator.labelling.decide import OwnerWish, Subject, Wish, decide, wish_of
from gpu_control_plane.operator.migration.installation import Installation
from gpu_control_plane.operator.upgrade.caches import is_driver

_MOST_PASSES: Final = 5


class Relabelled(msgspec.Struct, frozen=True):
    """The nodes as they would be."""

    nodes: tuple[Node, ...]
    trouble: str = ""
    """Why no node changes its NVIDIADriver."""


class KeyChange(msgspec.Struct, frozen=True, rename="camel"):
    """The same change of a label or an annotation on several nodes; None stands for its absence."""

    key: str
    before: str | None
    after: str | None
    nodes: tuple[str, ...]


def relabelled(found: Installation, spec: ClusterPolicySpec) -> Relabelled:
    """All nodes with the labels and annotations that this operator would give them."""
    wish, drivers = wish_of(spec), [driver_of(stored) for stored in found.drivers]
    states = {state.name: state for state in found.states}
    with_driver = {pod.spec.node_name for pod in found.driver_pods if is_driver(pod)}
    nodes, ownership = found.nodes, Ownership()
    for _ in range(_MOST_PASSES):
        if wish.driver_crd:
            ownership = owners(drivers, nodes)
        after = tuple(
            _changed(
                Subject(
                    node=node,
                    report=report_of(states.get(node.name)),
                    driver_pod=node.name in with_driver,
                    owner=_owner(node, ownership, drivers) if wish.driver_crd else None,
                ),
                wish,
            )
            for node in nodes
        )
        if after == nodes:
            break
        nodes = after
    return Relabelled(nodes, ownership.trouble.message if ownership.trouble is not None else "")


def key_changes(
    before: Sequence[Node], after: Sequence[Node], keys: Callable[[Node], Mapping[str, str]]
) -> tuple[KeyChange, ...]:
    """What differs in the labels or the annotations of the same nodes, told once for all nodes it is true of."""
    nodes: dict[tuple[str, str | None, str | None], list[str]] = {}
    for old, new in zip(before, after, strict=True):
        held, made = keys(old), keys(new)
        for key in {*held, *made}:
            if held.get(key) != made.get(key):
                nodes.setdefault((key, held.get(key), made.get(key)), []).append(old.name)
    return tuple(KeyChange(*change, tuple(sorted(nodes[change]))) for change in sorted(nodes, key=str))


def _owner(node: Node, ownership: Ownership, drivers: Sequence[Driver]) -> OwnerWish | None:
    if ownership.trouble is not None:
        return None
    name = ownership.owners.get(node.name)
    spec = next((driver.spec for driver in drivers if driver.name == name), None)
    return OwnerWish(name, upgrades=upgrades_itself(spec))


def _changed(subject: Subject, wish: Wish) -> Node:
    change, node = decide(subject, wish), subject.node
    if not change:
        return node
    meta = msgspec.structs.replace(
        node.metadata,
        labels=_patched(node.metadata.labels, change.labels),
        annotations=_patched(node.metadata.annotations, change.annotations),
    )
    return msgspec.structs.replace(node, metadata=meta)


def _patched(held: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**held, **changes}.items() if value is not None}
