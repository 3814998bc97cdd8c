"""Which NVIDIADriver owns a node. Pure.

The one whose selector matches the node; a node that no selector matches goes to the default one. While NVIDIADrivers
contradict each other about any node, no node changes its owner: a driver that changed its owner by mistake would be
unloaded while pods use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import NVIDIADriverSpec
from gpu_control_plane.api.nvidia.names import NodeLabel, StackReason
from gpu_control_plane.operator.node_facts import is_gpu_node, selects

_MOST_NAMED: Final = 3


class ParsedDriver(msgspec.Struct, frozen=True, kw_only=True):
    """An NVIDIADriver with its spec, if that can be read; if not, `problem` says why."""

    name: str
    uid: str
    generation: int = 0
    spec: NVIDIADriverSpec | None = None
    problem: str = ""
    deleting: bool = False


class DriverProblem(msgspec.Struct, frozen=True):
    """Why no node changes its owner, or why a driver is not carried out."""

    reason: StackReason
    message: str


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of each GPU node, None for none; with a `problem` the owner of no node is known."""

    owners: Mapping[str, str | None] = {}
    problem: DriverProblem | None = None

    def nodes_of(self, driver: str) -> frozenset[str]:
        return frozenset(node for node, owner in self.owners.items() if owner == driver)


class SelectorClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes the NVIDIADrivers select, read once for all nodes."""

    selectors: Mapping[str, Mapping[str, str]] = {}
    """The node selector of each, except the default one."""
    default: str | None = None
    problem: DriverProblem | None = None

    def claimants(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The NVIDIADrivers that would own a node with these labels; more than one is a conflict."""
        return self.or_default(self.selecting(labels)) if is_gpu_node(labels) else ()

    def selecting(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Those whose selector matches a GPU node with these labels."""
        return tuple(name for name, selector in self.selectors.items() if selects(selector, labels))

    def or_default(self, selecting: tuple[str, ...]) -> tuple[str, ...]:
        """A GPU node that no selector matches goes to the default one."""
        return selecting or ((self.default,) if self.default is not None else ())


def selector_claims(drivers: Sequence[ParsedDriver]) -> SelectorClaims:
    """Which nodes the NVIDIADrivers select. One that is being deleted selects none."""
    alive = sorted((driver for driver in drivers if not driver.deleting), key=lambda driver: driver.name)
    specs = {driver.name: driver.spec for driver in alive if driver.spec is not None}
    defaults = [name for name, spec in specs.items() if spec.default]
    selectors = {name: spec.node_selector or {} for name, spec in specs.items() if not spec.default}
    return SelectorClaims(
        selectors=selectors,
        default=defaults[0] if defaults else None,
        problem=_unreadable(alive) or _several(defaults) or _circular(selectors),
    )


def ownership_of(drivers: Sequence[ParsedDriver], nodes: Iterable[Node]) -> Ownership:
    """The owner of every GPU node."""
    claims = selector_claims(drivers)
    if claims.problem is not None:
        return Ownership(problem=claims.problem)
    found = {node.name: claims.claimants(node.metadata.labels) for node in nodes if is_gpu_node(node.metadata.labels)}
    if problem := selector_conflict({node: names for node, names in found.items() if len(names) > 1}):
        return Ownership(problem=problem)
    return Ownership(owners={node: names[0] if names else None for node, names in found.items()})


def selector_conflict(contested: Mapping[str, tuple[str, ...]]) -> DriverProblem | None:
    """The problem of nodes that several NVIDIADrivers select; None if there are none."""
    if not contested:
        return None
    nodes = sorted(contested)
    named = "; ".join(f"{node}: {', '.join(contested[node])}" for node in nodes[:_MOST_NAMED])
    more = f"; and {len(nodes) - _MOST_NAMED} more" if len(nodes) > _MOST_NAMED else ""
    return DriverProblem(
        StackReason.CONFLICTING_NODE_SELECTOR,
        f"several NVIDIADrivers select the same nodes ({named}{more}), so no node changes its driver:"
        " narrow their nodeSelectors",
    )


def _unreadable(drivers: Sequence[ParsedDriver]) -> DriverProblem | None:
    broken = [f"{driver.name}: {driver.problem}" for driver in drivers if driver.spec is None]
    return DriverProblem(StackReason.RECONCILE_FAILED, f"cannot be read: {'; '.join(broken)}") if broken else None


def _several(defaults: list[str]) -> DriverProblem | None:
    if len(defaults) < 2:  # noqa: PLR2004 - one default is as it should be
        return None
    return DriverProblem(
        StackReason.RECONCILE_FAILED,
        f"{' and '.join(defaults)} are both default, so no node changes its driver: leave one of them",
    )


def _circular(selectors: Mapping[str, Mapping[str, str]]) -> DriverProblem | None:
    wrong = [name for name, selector in selectors.items() if NodeLabel.DRIVER_OWNER in selector]
    if not wrong:
        return None
    return DriverProblem(
        StackReason.RECONCILE_FAILED,
        f"the nodeSelector of {', '.join(wrong)} uses the label {NodeLabel.DRIVER_OWNER}, which says whom a node"
        " belongs to and follows from the nodeSelectors: select by another label",
    )
