"""Whom every node belongs to, kept at every change of a node or an NVIDIADriver, on every replica.

One change of a node costs one decision, however many nodes there are; whoever asks gets an answer at once.
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
from gpu_control_plane.operator.drivers.owner import Claims, Driver, Trouble, claims_of, conflict
from gpu_control_plane.operator.labelling.decide import OwnerWish
from gpu_control_plane.operator.upgrade.campaigns import Campaign

_OWNED: Final = "operator.drivers/owned"
_ABSENT: Final = DriverUpgradePolicy(pod_deletion=PodDeletion(), wait_for_completion=WaitForCompletion(), drain=Drain())
"""The policy of an NVIDIADriver that has none."""


class OwnerBook:
    """Owners by what NVIDIADrivers select, and nodes by the owner whose label they carry."""

    def __init__(self, drivers: Cache[StoredNVIDIADriver], nodes: Cache[Node]) -> None:
        self._stored = drivers
        self._nodes = nodes
        self._claims = Claims()
        self._claimants: dict[str, tuple[str, ...]] = {}
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
        return [driver_of(stored) for stored in self._stored if not stored.deleting]

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
        policy = self._policy(claimants[0])
        return OwnerWish(claimants[0], upgrades=policy is not None and policy.auto_upgrade)

    def carrying(self, driver: str) -> list[Node]:
        """The nodes that carry the NVIDIADriver's name."""
        return self._nodes.under(_OWNED, driver)

    def unlabelled(self, driver: str) -> list[str]:
        """The nodes that are to be an NVIDIADriver's, but do not carry its name yet."""
        if self.trouble is not None:
            return []
        carrying = {node.name for node in self.carrying(driver)}
        return sorted(node for node, found in self._claimants.items() if found == (driver,) and node not in carrying)

    def campaigns(self) -> Sequence[Campaign]:
        """The upgrade policy of each, with the nodes that carry its name."""
        return tuple(
            Campaign(
                driver.name, self._policy(driver.name), frozenset(node.name for node in self.carrying(driver.name))
            )
            for driver in sorted(self.drivers(), key=lambda driver: driver.name)
        )

    def _policy(self, name: str) -> UpgradePolicy | None:
        stored = self._stored.get(name)
        spec = driver_of(stored).spec if stored is not None else None
        return upgrade_policy(spec) if spec is not None else None

    def _driver_changed(self, old: StoredNVIDIADriver | None, new: StoredNVIDIADriver | None) -> None:
        if not spec_changed(old, new):
            return
        self._claims = claims_of([driver_of(stored) for stored in self._stored])
        self._claimants, self._contested = {}, {}
        for node in self._nodes:
            self._look_at(node)
        self._tell()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        contested = bool(self._contested)
        if new is not None:
            self._look_at(new)
        elif old is not None:
            self._claimants.pop(old.name, None)
            self._contested.pop(old.name, None)
        if contested != bool(self._contested):
            self._tell()

    def _look_at(self, node: Node) -> None:
        found = self._claims.claimants(node.metadata.labels)
        for names, holds in ((self._claimants, found), (self._contested, len(found) > 1)):
            if holds:
                names[node.name] = found
            else:
                names.pop(node.name, None)

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


def upgrade_policy(spec: NVIDIADriverSpec) -> UpgradePolicy | None:
    """How its drivers are upgraded. Virtual machines cannot leave a host driver, so nobody upgrades that."""
    if spec.driver_type is DriverType.VGPU_HOST_MANAGER:
        return None
    return spec.upgrade_policy or _ABSENT
