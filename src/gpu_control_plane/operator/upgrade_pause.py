"""Pausing the upgrade of drivers, and letting it go on: `paused` in the upgrade policies, as people would write it.

Nodes that are under way are finished; no further one begins. Switching `autoUpgrade` off instead would undo what is
under way.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import TRUE, NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.operator.drivers.ownership_index import upgrade_policy

_WHERE: Final[Mapping[type[Object], tuple[str, ...]]] = {
    StoredClusterPolicy: ("spec", "driver", "upgradePolicy"),
    StoredNVIDIADriver: ("spec", "upgradePolicy"),
}


class UpgradeSetting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The upgrade policy of one object, and what its upgrade waits for."""

    kind: str
    name: str
    automatic: bool
    """Whether upgrades are done at all."""
    paused: bool
    message: str


async def read_policies(client: Client) -> list[StoredClusterPolicy | StoredNVIDIADriver]:
    """All objects that can have an upgrade policy; none where the operator's kinds are not installed."""
    found: list[StoredClusterPolicy | StoredNVIDIADriver] = []
    for kind in (StoredClusterPolicy, StoredNVIDIADriver):
        try:
            found += await client.list(kind)
        except NotFound:
            continue
    return found


def upgrade_settings(policies: Iterable[StoredClusterPolicy | StoredNVIDIADriver]) -> list[UpgradeSetting]:
    """How upgrades are set, object by object."""
    return [_setting(each, policy) for each in policies if (policy := _policy(each)) is not None]


async def set_paused(
    client: Client, policies: Iterable[StoredClusterPolicy | StoredNVIDIADriver], *, paused: bool
) -> list[str]:
    """Write it where upgrades are on and it is not so yet; the objects that were changed, as `kind/name`.

    Without a resourceVersion: this one field depends on nothing else, and the operator writes the status meanwhile.
    """
    changed = []
    for each in policies:
        policy = _policy(each)
        if policy is None or not policy.auto_upgrade or policy.paused is paused:
            continue
        body: dict[str, object] = {"paused": paused}
        for field in reversed(_WHERE[type(each)]):
            body = {field: body}
        await client.patch(type(each), each.name, body)
        changed.append(f"{each.resource.kind}/{each.name}")
    return changed


async def set_skipped(client: Client, node: str, *, skipped: bool) -> bool:
    """Keep upgrades away from one node, or no longer; whether that changed anything. A node whose pods have not been
    evicted yet is let go of again."""
    found = await client.get(Node, node)
    if (found.metadata.labels.get(NodeLabel.UPGRADE_SKIP) == TRUE) is skipped:
        return False
    labels = {str(NodeLabel.UPGRADE_SKIP): TRUE if skipped else None}
    await client.patch(Node, node, {"metadata": {"labels": labels}})
    return True


def _setting(each: StoredClusterPolicy | StoredNVIDIADriver, policy: UpgradePolicy) -> UpgradeSetting:
    report = each.status.upgrade
    return UpgradeSetting(
        kind=each.resource.kind,
        name=each.name,
        automatic=policy.auto_upgrade,
        paused=policy.paused,
        message=report.message if report is not None else "",
    )


def _policy(each: StoredClusterPolicy | StoredNVIDIADriver) -> UpgradePolicy | None:
    """The policy that applies; None where there is none, or the spec cannot be read."""
    try:
        if isinstance(each, StoredNVIDIADriver):
            return upgrade_policy(each.read().spec)
        return each.read().spec.driver.upgrade_policy
    except UnreadableSpec:
        return None
