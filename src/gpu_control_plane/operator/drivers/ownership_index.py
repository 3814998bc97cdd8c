"""Which NVIDIADriver owns each node, kept current at every change of a node or an NVIDIADriver, on every replica.

A change of a node costs one decision, however many nodes there are; a change of an NVIDIADriver one comparison for each
node. A reader gets the answer at once.
"""

from collections.abc import Sequence
from typing import Final

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import NVIDIADriverSpec
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.nvidiadriver import DriverType
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.api.nvidia.upgradepolicy import (
    Drain,
    DriverUpgradePolicy,
    PodDeletion,
    UpgradePolicy,
    WaitForCompletion,
)
from gpu_control_plane.kube import Cache, Signal
from gpu_control_plane.kube.predicates import spec_changed
from gpu_control_plane.operator.drivers.owner import (
    DriverProblem,
    ParsedDriver,
    SelectorClaims,
    selector_claims,
    selector_conflict,
)
from gpu_control_plane.operator.labelling.decide import DriverOwner
from gpu_control_plane.operator.node_facts import is_gpu_node, selects
from gpu_control_plane.operator.upgrade.groups import UpgradeGroup

_OWNED: Final = "operator.drivers/owned"
_DEFAULT_POLICY: Final = DriverUpgradePolicy(
    pod_deletion=PodDeletion(), wait_for_completion=WaitForCompletion(), drain=Drain()
)
"""The policy of an NVIDIADriver that has none."""


class OwnershipIndex:
    """The owner of each node by what NVIDIADrivers select, and nodes by the owner label that they carry.

    `changed` is fired when the owners of many nodes may have changed, and when a conflict appears or is solved.
    """

    def __init__(self, drivers: Cache[StoredNVIDIADriver], nodes: Cache[Node]) -> None:
        self.changed = Signal("driver-ownership")
        self._nodes = nodes
        self._drivers: dict[str, ParsedDriver] = {}
        self._policies: dict[str, UpgradePolicy | None] = {}
        self._claims = SelectorClaims()
        self._selecting: dict[str, tuple[str, ...]] = {}
        """By GPU node, the NVIDIADrivers whose selector matches it; the default one has no selector."""
        self._contested: dict[str, tuple[str, ...]] = {}
        nodes.index(_OWNED, lambda node: filter(None, (node.metadata.labels.get(NodeLabel.DRIVER_OWNER),)))
        drivers.on_change(self._driver_changed)
        nodes.on_change(self._node_changed)

    def drivers(self) -> list[ParsedDriver]:
        """All NVIDIADrivers that are not being deleted."""
        return [driver for driver in self._drivers.values() if not driver.deleting]

    @property
    def problem(self) -> DriverProblem | None:
        """Why no node changes its owner at the moment."""
        return self._claims.problem or selector_conflict(self._contested)

    def owner(self, node: Node) -> DriverOwner | None:
        """The NVIDIADriver that should own a node; None while NVIDIADrivers contradict each other."""
        claimants = self._claims.claimants(node.metadata.labels)
        if self._claims.problem is not None or self._contested or len(claimants) > 1:
            return None
        if not claimants:
            return DriverOwner(None)
        return DriverOwner(claimants[0], upgrades=_automatic(self._policies.get(claimants[0])))

    def labelled_nodes(self, driver: str) -> list[Node]:
        """The nodes whose owner label names the NVIDIADriver."""
        return self._nodes.by_index(_OWNED, driver)

    def unlabelled_nodes(self, driver: str) -> list[str]:
        """The nodes that an NVIDIADriver should own, but whose label does not name it yet."""
        if self.problem is not None:
            return []
        labelled = {node.name for node in self.labelled_nodes(driver)}
        return sorted(
            node
            for node, found in self._selecting.items()
            if self._claims.or_default(found) == (driver,) and node not in labelled
        )

    def upgrade_groups(self) -> Sequence[UpgradeGroup]:
        """The upgrade policy of each NVIDIADriver, with the nodes whose label names it."""
        return tuple(
            UpgradeGroup(
                driver.name,
                self._policies[driver.name],
                frozenset(node.name for node in self.labelled_nodes(driver.name)),
                unreadable=driver.spec is None,
            )
            for driver in sorted(self.drivers(), key=lambda driver: driver.name)
        )

    def _driver_changed(self, old: StoredNVIDIADriver | None, new: StoredNVIDIADriver | None) -> None:
        if not spec_changed(old, new):
            return
        if new is not None:
            driver = self._drivers[new.name] = parse_driver(new)
            self._policies[new.name] = upgrade_policy(driver.spec) if driver.spec is not None else None
        elif old is not None:
            self._drivers.pop(old.name, None)
            self._policies.pop(old.name, None)
        before, self._claims = self._claims, selector_claims(list(self._drivers.values()))
        for name in before.selectors.keys() | self._claims.selectors.keys():
            if before.selectors.get(name) != self._claims.selectors.get(name):
                self._selector_changed(name)
        self.changed.fire()

    def _selector_changed(self, driver: str) -> None:
        selector = self._claims.selectors.get(driver)
        for node in self._nodes:
            found = self._selecting.get(node.name)
            if found is None:
                continue
            if (driver in found) != (selector is not None and selects(selector, node.metadata.labels)):
                self._update(node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        contested = bool(self._contested)
        if new is not None:
            self._update(new)
        elif old is not None:
            self._forget(old.name)
        if contested != bool(self._contested):
            self.changed.fire()

    def _update(self, node: Node) -> None:
        self._forget(node.name)
        if is_gpu_node(node.metadata.labels):
            found = self._selecting[node.name] = self._claims.selecting(node.metadata.labels)
            if len(found) > 1:
                self._contested[node.name] = found

    def _forget(self, name: str) -> None:
        self._selecting.pop(name, None)
        self._contested.pop(name, None)


def parse_driver(stored: StoredNVIDIADriver) -> ParsedDriver:
    meta = stored.metadata
    try:
        spec, problem = stored.read().spec, ""
    except UnreadableSpec as error:
        spec, problem = None, str(error)
    return ParsedDriver(
        name=stored.name,
        uid=meta.uid,
        generation=meta.generation,
        spec=spec,
        problem=problem,
        deleting=stored.deleting,
    )


def upgrades_automatically(spec: NVIDIADriverSpec | None) -> bool:
    """Whether its drivers are upgraded without a request; not if it cannot be read."""
    return spec is not None and _automatic(upgrade_policy(spec))


def upgrade_policy(spec: NVIDIADriverSpec) -> UpgradePolicy | None:
    """How its drivers are upgraded. A vGPU host driver is never upgraded: virtual machines cannot be moved away."""
    if spec.driver_type is DriverType.VGPU_HOST_MANAGER:
        return None
    return spec.upgrade_policy or _DEFAULT_POLICY


def _automatic(policy: UpgradePolicy | None) -> bool:
    return policy is not None and policy.auto_upgrade
