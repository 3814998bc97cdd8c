"""Which policy governs which nodes: what the upgrade asks of those who read ClusterPolicies and NVIDIADrivers."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from gpu_control_plane.api.nvidia.upgradepolicy import UpgradePolicy

THE_POLICYS: Final = ""
"""Name of the ClusterPolicy's own campaign; the others have the names of NVIDIADrivers."""


class Campaign(msgspec.Struct, frozen=True):
    """One policy and the nodes it governs."""

    name: str
    """`THE_POLICYS`, or the NVIDIADriver's name."""
    policy: UpgradePolicy | None
    """None, or one without `autoUpgrade`: upgrades are off."""
    nodes: frozenset[str]
    unreadable: bool = False
    """Nobody can say what the policy is: its nodes stay as they are, since off would mean to let them go."""

    @property
    def active_policy(self) -> UpgradePolicy | None:
        return self.policy if self.policy is not None and self.policy.auto_upgrade else None


def governed_otherwise(before: Mapping[str, Campaign], after: Mapping[str, Campaign]) -> set[str]:
    """The nodes that another policy governs now, or none. That a campaign has other nodes changes nothing for one that
    it keeps."""
    old, new = ({held.name: held for held in governing.values()} for governing in (before, after))
    changed = {name for name, held in new.items() if name not in old or _terms(old[name]) != _terms(held)}
    return {
        node
        for node in before.keys() | after.keys()
        if (held := after.get(node)) is None
        or (was := before.get(node)) is None
        or was.name != held.name
        or held.name in changed
    }


def _terms(campaign: Campaign) -> tuple[UpgradePolicy | None, bool]:
    return campaign.policy, campaign.unreadable


class Campaigns(Protocol):
    """All of them."""

    def all(self) -> Sequence[Campaign] | None:
        """Every campaign, so that a node in none of them has upgrades off; None while nobody can say."""

    def may_write(self) -> bool:
        """False while somebody else is in charge."""
