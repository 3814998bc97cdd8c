"""What an explanation is: the cause, a sentence for people, and the way out for those who can do something about it."""

import msgspec

from gpu_control_plane.kube.fields import OpenEnum


class Cause(OpenEnum):
    """Why a pod waits. In the action of an Event `WaitingForGPU`, and `cause` of `kubectl gpu explain -o json`."""

    NO_SUCH_POOL = "NoSuchPool", "no pool has the resource."
    NO_ACCESS = "NoAccess", "the namespace, the service account or the user may not use the pool."
    QUOTA = "QuotaExceeded", "the namespace would hold more than a quota allows."
    REFUSED = "Refused", "something else refuses the pod: the sentence says what."
    GATED = "SchedulingGated", "a scheduling gate keeps the scheduler from looking at the pod."
    POOL_DELETED = "PoolDeleted", "the pool is being deleted."
    MISCONFIGURED = "PoolMisconfigured", "the pool cannot be carried out."
    MAINTENANCE = "Maintenance", "the pool's cards are being divided anew."
    NO_CARDS = "NoCards", "the pool has no cards."
    AWAITING_APPROVAL = "AwaitingApproval", "cards for the pool wait for a person's approval."
    BURN_IN = "BurningIn", "the pool's cards are being tested, or have failed their test."
    CARD_FAULTED = "CardFaulted", "the pool's cards have faults."
    NODE_NOT_READY = "NodeNotReady", "the nodes with the pool's cards do not work, or are not ready for pooling."
    DRIVER_MISSING = "DriverMissing", "the nodes with the pool's cards have no working driver."
    CONFLICTING_PLUGIN = "ConflictingDevicePlugin", "another device plugin serves the pool's cards."
    NOT_OFFERED = "NotOffered", "no node offers the pool's cards yet."
    TOO_MANY = "TooManyForOneNode", "the pod asks for more than any node of the pool has."
    NO_FREE_UNIT = "NoFreeUnit", "every unit of the pool is taken."
    NOT_ON_ONE_NODE = "NotOnOneNode", "enough units are free, but not on one node."
    CORDONED = "NodeCordoned", "the nodes with free units are cordoned."
    SELECTOR = "NodeSelector", "the pod's nodeSelector or affinity keeps it from the nodes with free units."
    TAINT = "NodeTaint", "the nodes with free units have a taint that the pod does not tolerate."
    CPU_OR_MEMORY = "TooLittleCPUOrMemory", "the nodes with free units have too little CPU or memory for the pod."
    SCHEDULER = "SchedulerDecides", "a node with free units seems to fit: the scheduler knows more, or is about to act."


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why one pod waits. Sentences begin in lower case and have no full stop: they are joined to others."""

    cause: Cause
    resource: str = ""
    """What the pod asks for."""
    pool: str = ""
    sentence: str
    user: str
    """What the person who wants the pod can do."""
    admin: str = ""
    """What an administrator can do, with the command to type."""
    facts: tuple[str, ...] = ()
    """For an administrator: who holds the units, who is ahead. A tenant is not told of others."""
    certain: bool = True
    """False for what may be over in a moment: the scheduler may be about to place the pod."""

    @property
    def note(self) -> str:
        """The text of an Event."""
        admin = f"; for an administrator: {self.admin}" if self.admin else ""
        return f"{self.sentence}; {self.user}{admin}"

    @property
    def action(self) -> str:
        """The action of an Event: what has to change before somebody is told anew. Numbers change all the time."""
        return f"{self.cause}/{self.pool}" if self.pool else str(self.cause)
