"""Why a card is in no pool, each reason with a sentence for people."""

from gpu_control_plane.kube.fields import OpenEnum


class PendingReason(OpenEnum):
    """The reasons in `status.pools.pending[]` of a GPUNodeState."""

    APPROVAL = "AwaitingApproval", "a pool selects the card and a person has to approve it."
    BURN_IN = "BurningIn", "the agent tests the card before it may join a pool."
    BURN_IN_FAILED = "BurnInFailed", "the card failed its test; its condition BurnedIn says why."
    DRAIN = "Draining", "the card is still being released elsewhere."
    HEALTH = "Faulted", "the card has a fault."
    HELD = "Held", "the hold annotation keeps automatic approval away."
    IGNORED = "Ignored", "the ignore label takes the card out of service."
    IN_OTHER_POOL = "InOtherPool", "another pool has the card, or the card is approved for another one."
    MODE_UNSUPPORTED = "ModeUnsupported", "the card cannot be divided as the pool asks (no MIG, or other profiles)."
    NODE_LIMIT = "NodeLimit", "the pool takes no more cards from this node (maxDevicesPerNode)."
    NODE_NOT_READY = "NodeNotReady", "the node is not ready for pooling."
    NO_POOL = "NoPool", "no pool selects the card."
    NOT_SELECTED = "NotSelected", "the approved pool does not select the card."
    PROBE = "NotProbed", "the agent has not said yet whether the card works."
    POOL_DELETED = "PoolDeleted", "the pool is being deleted."
    POOL_MISCONFIGURED = "PoolMisconfigured", "the approved pool cannot be carried out."
    POOL_NOT_FOUND = "PoolNotFound", "there is no such pool."

    @property
    def because(self) -> str:
        """The sentence without its full stop, for use inside another."""
        return self.meaning.rstrip(".") or str(self)

    @property
    def needs_attention(self) -> bool:
        """Whether the card was approved for a pool that cannot have it."""
        return self in {
            PendingReason.MODE_UNSUPPORTED,
            PendingReason.NOT_SELECTED,
            PendingReason.POOL_MISCONFIGURED,
            PendingReason.POOL_NOT_FOUND,
            PendingReason.NODE_LIMIT,
        }
