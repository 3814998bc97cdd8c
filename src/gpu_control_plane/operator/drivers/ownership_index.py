"""Whom every node belongs to, kept at every change of a node or an NVIDIADriver, on every replica.

One change of a node costs one decision, however many nodes there are, and one of an NVIDIADriver one comparison for
each node; whoever asks gets an answer at once.
"""

from collections.abc import Callable, Sequence
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
from gpu_control_plane.kube import Cache
from gpu_control_plane.kube.changes import spec_changed
from gpu_control_plane.operator.drivers.owner import Claims, Driver, Trouble, claims_of, conflict, selects
from gpu_control_plane.operator.labelling.decide import OwnerWish
from gpu_control_plane.operator.node_facts import gpu_present
from gpu_control_plane.operator.upgrade.groups import Campaign

_OWNED: Final = "operator.drivers/owned"
_ABSENT: Final = DriverUpgradePolicy(pod_deletion=PodDeletion(), wait_for_completion=WaitForCompletion(), drain=Drain())
"""The policy of an NVIDIADriver that has none."""


class OwnerBook:
    """Owners by what NVIDIADrivers select, and nodes by the owner whose label they carry."""

    def __init__(self, drivers: Cache[StoredNVIDIADriver], nodes: Cache[Node]) -> None:
        self._nodes = nodes
        self._read: dict[str, Driver] = {}
        self._policies: dict[str, UpgradePolicy | None] = {}
        self._claims = Claims()
        self._selecting: dict[str, tuple[str, ...]] = {}
        """By GPU node, those that name it; the default one names nobody."""
        self._contested: dict[str, tuple[str, ...]] = {}
        self._told: list[Callable[[], None]] = []
        nodes.index(_OWNED, lambda node: filter(None, (node.metadata.labels.get(NodeLabel.DRIVER_OWNER),)))
        drivers.on_change(self._driver_changed)
        nodes.on_change(self._node_changed)

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the owners of many nodes may be others, or nobody can say any longer, or can again."""
        self._told.append(tell)

    def drivers(self) -> list[Driver]:
        """All of them that are not being deleted."""
        return [driver for driver in self._read.values() if not driver.deleting]

    @property
    def trouble(self) -> Trouble | None:
        """Why no node changes its owner at the moment."""
        return self._claims.trouble or conflict(self._contested)

    def owner(self, node: Node) -> OwnerWish | None:
        """The NVIDIADriver that a node should belong to; None while nobody can say."""
        claimants = self._claims.claimants(node.metadata.labels)
        if self._claims.trouble is not None or self._contested or len(claimants) > 1:
            return None
        if not claimants:
            return OwnerWish(None)
        return OwnerWish(claimants[0], upgrades=_automatic(self._policies.get(claimants[0])))

    def carrying(self, driver: str) -> list[Node]:
        """The nodes that carry the NVIDIADriver's name."""
        return self._nodes.by_index(_OWNED, driver)

    def unlabelled(self, driver: str) -> list[str]:
        """The nodes that are to be an NVIDIADriver's, but do not carry its name yet."""
        if self.trouble is not None:
            return []
        carrying = {node.name for node in self.carrying(driver)}
        return sorted(
            node
            for node, found in self._selecting.items()
            if self._claims.or_default(found) == (driver,) and node not in carrying
        )

    def campaigns(self) -> Sequence[Campaign]:
        """The upgrade policy of each, with the nodes that carry its name."""
        return tuple(
            Campaign(
                driver.name,
                self._policies[driver.name],
                frozenset(node.name for node in self.carrying(driver.name)),
                unreadable=driver.spec is None,
            )
            for driver in sorted(self.drivers(), key=lambda driver: driver.name)
        )

    def _driver_changed(self, old: StoredNVIDIADriver | None, new: StoredNVIDIADriver | None) -> None:
        if not spec_changed(old, new):
            return
        if new is not None:
            driver = self._read[new.name] = driver_of(new)
            self._policies[new.name] = upgrade_policy(driver.spec) if driver.spec is not None else None
        elif old is not None:
            self._read.pop(old.name, None)
            self._policies.pop(old.name, None)
        before, self._claims = self._claims, claims_of(list(self._read.values()))
        for name in before.selectors.keys() | self._claims.selectors.keys():
            if before.selectors.get(name) != self._claims.selectors.get(name):
                self._select_anew(name)
        self._tell()

    def _select_anew(self, driver: str) -> None:
        """One of them names other nodes now, or none."""
        selector = self._claims.selectors.get(driver)
        for node in self._nodes:
            found = self._selecting.get(node.name)
            if found is None:
                continue
            if (driver in found) != (selector is not None and selects(selector, node.metadata.labels)):
                self._look_at(node)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        contested = bool(self._contested)
        if new is not None:
            self._look_at(new)
        elif old is not None:
            self._forget(old.name)
        if contested != bool(self._contested):
            self._tell()

    def _look_at(self, node: Node) -> None:
        self._forget(node.name)
        if gpu_present(node.metadata.labels):
            found = self._selecting[node.name] = self._claims.selecting(node.metadata.labels)
            if len(found) > 1:
                self._contested[node.name] = found

    def _forget(self, name: str) -> None:
        self._selecting.pop(name, None)
        self._contested.pop(name, None)

    def _tell(self) -> None:
        for tell in self._told:
            tell()


def driver_of(stored: StoredNVIDIADriver) -> Driver:
    meta = stored.metadata
    try:
        spec, problem = stored.read().spec, ""
    except UnreadableSpec as error:
        spec, problem = None, str(error)
    return Driver(
        name=stored.name,
        uid=meta.uid,
        generation=meta.generation,
        spec=spec,
        problem=problem,
        deleting=stored.deleting,
    )


def upgrades_itself(spec: NVIDIADriverSpec | None) -> bool:
    """Whether its drivers are upgraded without being asked; not where nobody can read it."""
    return spec is not None and _automatic(upgrade_policy(spec))


def upgrade_policy(spec: NVIDIADriverSpec) -> UpgradePolicy | None:
    """How its drivers are upgraded. Virtual machines cannot leave a host driver, so nobody upgrades that."""
    if spec.driver_type is DriverType.VGPU_HOST_MANAGER:
        return None
    return spec.upgrade_policy or _ABSENT


def _automatic(policy: UpgradePolicy | None) -> bool:
    return policy is not None and policy.auto_upgrade
