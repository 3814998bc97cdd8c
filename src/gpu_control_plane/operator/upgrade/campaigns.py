"""Which policy governs which nodes: what the upgrade asks of those who read ClusterPolicies and NVIDIADrivers."""

from collections.abc import Sequence
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

    @property
    def active_policy(self) -> UpgradePolicy | None:
        return self.policy if self.policy is not None and self.policy.auto_upgrade else None


class Campaigns(Protocol):
    """All of them."""

    def all(self) -> Sequence[Campaign] | None:
        """Every campaign, so that a node in none of them has upgrades off; None while nobody can say."""

    def may_write(self) -> bool:
        """False while somebody else is in charge."""
