"""Which NVIDIADriver a node belongs to. Pure.

The one that selects the node has it; a node that nobody selects goes to the default one. Where the NVIDIADrivers
contradict each other anywhere, nothing is decided for any node: a driver that changes its owner by mistake would be
unloaded under running work.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import NVIDIADriverSpec
from gpu_control_plane.api.nvidia.names import NodeLabel, StackReason
from gpu_control_plane.operator.node_facts import gpu_present

_NAMED: Final = 3


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """An NVIDIADriver as far as decisions need it. Without a spec it could not be read, and `problem` says why."""

    name: str
    uid: str
    generation: int = 0
    spec: NVIDIADriverSpec | None = None
    problem: str = ""
    deleting: bool = False


class Trouble(msgspec.Struct, frozen=True):
    """Why nothing can be decided."""

    reason: StackReason
    message: str


class Ownership(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of each GPU node, None for none; or, with a trouble, of no node at all."""

    owners: Mapping[str, str | None] = {}
    trouble: Trouble | None = None

    def nodes_of(self, driver: str) -> frozenset[str]:
        return frozenset(node for node, owner in self.owners.items() if owner == driver)


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What the NVIDIADrivers that count ask for, read once for all nodes."""

    selectors: Mapping[str, Mapping[str, str]] = {}
    """Labels of the nodes of each, but for the default one."""
    default: str | None = None
    trouble: Trouble | None = None

    def claimants(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Those that ask for a node with these labels; more than one is a conflict."""
        return self.or_default(self.selecting(labels)) if gpu_present(labels) else ()

    def selecting(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Those that name a GPU node with these labels."""
        return tuple(name for name, selector in self.selectors.items() if selects(selector, labels))

    def or_default(self, selecting: tuple[str, ...]) -> tuple[str, ...]:
        """A GPU node that nobody names goes to the default one."""
        return selecting or ((self.default,) if self.default is not None else ())


def claims_of(drivers: Sequence[Driver]) -> Claims:
    """Read what is asked for. One that is being deleted asks for nothing any more."""
    alive = sorted((driver for driver in drivers if not driver.deleting), key=lambda driver: driver.name)
    specs = {driver.name: driver.spec for driver in alive if driver.spec is not None}
    defaults = [name for name, spec in specs.items() if spec.default]
    selectors = {name: spec.node_selector or {} for name, spec in specs.items() if not spec.default}
    return Claims(
        selectors=selectors,
        default=defaults[0] if defaults else None,
        trouble=_unreadable(alive) or _several(defaults) or _circular(selectors),
    )


def owners(drivers: Sequence[Driver], nodes: Iterable[Node]) -> Ownership:
    """The owner of every GPU node."""
    claims = claims_of(drivers)
    if claims.trouble is not None:
        return Ownership(trouble=claims.trouble)
    found = {node.name: claims.claimants(node.metadata.labels) for node in nodes if gpu_present(node.metadata.labels)}
    if trouble := conflict({node: names for node, names in found.items() if len(names) > 1}):
        return Ownership(trouble=trouble)
    return Ownership(owners={node: names[0] if names else None for node, names in found.items()})


def conflict(contested: Mapping[str, tuple[str, ...]]) -> Trouble | None:
    """What to say of nodes that several select; None if there are none."""
    if not contested:
        return None
    nodes = sorted(contested)
    named = "; ".join(f"{node}: {', '.join(contested[node])}" for node in nodes[:_NAMED])
    more = f"; and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return Trouble(
        StackReason.CONFLICTING_NODE_SELECTOR,
        f"several NVIDIADrivers select the same nodes ({named}{more}), so no node changes its driver:"
        " narrow their nodeSelectors",
    )


def _unreadable(drivers: Sequence[Driver]) -> Trouble | None:
    broken = [f"{driver.name}: {driver.problem}" for driver in drivers if driver.spec is None]
    return Trouble(StackReason.RECONCILE_FAILED, f"cannot be read: {'; '.join(broken)}") if broken else None


def _several(defaults: list[str]) -> Trouble | None:
    if len(defaults) < 2:  # noqa: PLR2004 - one default is as it should be
        return None
    return Trouble(
        StackReason.RECONCILE_FAILED,
        f"{' and '.join(defaults)} are both default, so no node changes its driver: leave one of them",
    )


def _circular(selectors: Mapping[str, Mapping[str, str]]) -> Trouble | None:
    wrong = [name for name, selector in selectors.items() if NodeLabel.DRIVER_OWNER in selector]
    if not wrong:
        return None
    return Trouble(
        StackReason.RECONCILE_FAILED,
        f"the nodeSelector of {', '.join(wrong)} uses the label {NodeLabel.DRIVER_OWNER}, which says whom a node"
        " belongs to and follows from the nodeSelectors: select by another label",
    )


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()
