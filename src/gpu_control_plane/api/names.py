"""Every annotation, label, condition and reason this project writes or reads, each with its meaning.

Controllers, the console and the reference page take them from here; nothing spells one out a second time.
"""

from typing import Final

from gpu_control_plane.kube.fields import OpenEnum

GROUP: Final = "gpu.deckhouse.io"
VERSION: Final = "v1alpha1"

USE: Final = "use"
"""The RBAC verb on a GPUPool that lets its holder ask for the pool's resources."""

BYPASS: Final = "bypass"
"""The RBAC verb on GPUPools that lets its holder reach cards past every pool: for drivers, plugins and exporters."""


class Annotation(OpenEnum):
    """Annotations. They change by a patch that carries a resourceVersion, never by apply."""

    ASSIGNMENT = (
        f"{GROUP}/assignment",
        "On a GPUDevice: the approval. The value is the pool the card may join; without it the card leaves its pool.",
    )
    APPROVED_BY = (
        f"{GROUP}/approved-by",
        "On a GPUDevice: the user who set the approval last, or took it off. The webhook writes it.",
    )
    REASON = (
        f"{GROUP}/reason",
        "On a GPUDevice: why a person approves, releases or retires the card. It goes into the card's history.",
    )
    HOLD = f"{GROUP}/hold", "On a GPUDevice: keeps automatic approval away from the card. The value says why."
    CLEAR_FAULT = (
        f"{GROUP}/clear-fault",
        "On a GPUDevice: set by a person when a faulted card, or one that failed burn-in, has been mended.",
    )
    CONFIRM_LAYOUT = (
        f"{GROUP}/confirm-layout",
        "On a GPUPool: a person's word that cards are partitioned as ordered again. The controller takes it off.",
    )
    RESERVATION = f"{GROUP}/reservation", "On a Pod: the token under which units were reserved for it."
    CRD_VERSION = f"{GROUP}/crd-version", "On a CRD: the release that installed it; an older one leaves it alone."


class Label(OpenEnum):
    """Labels."""

    IGNORE = f"{GROUP}/ignore", "On a GPUDevice: `true` takes the card out of service."
    NODE = f"{GROUP}/node", "On a GPUDevice: the node it is in."
    VENDOR = f"{GROUP}/vendor", "On a GPUDevice: who made the card."
    PRODUCT = f"{GROUP}/product", "On a GPUDevice: its model, with `-` for what a label may not hold: `NVIDIA-H200`."
    ARCHITECTURE = f"{GROUP}/architecture", "On a GPUDevice: its architecture, such as `Hopper`."
    POOL = (
        f"{GROUP}/pool",
        "On a Pod: the pool whose resource it asks for. On a ResourceQuota: the pool whose limits it holds.",
    )
    GPU_PRESENT = (
        f"{GROUP}/gpu.present",
        "On a Node: `true` where discovery sees a card on the PCI bus, so that the agent runs there.",
    )
    ENABLED = f"{GROUP}/enabled", "On a Node: `false` keeps our programs away, unless the chart names another label."


GPU_LABELS: Final = (
    *(f"feature.node.kubernetes.io/pci-{device}.present" for device in ("10de", "0302_10de", "0300_10de")),
    Label.GPU_PRESENT.value,
)
"""Labels of a Node, `true` on one of which brings the agent to it: Node Feature Discovery's, or that of our own."""


class DeviceCondition(OpenEnum):
    """Conditions of a GPUDevice."""

    HEALTHY = "Healthy", "The card answers and shows no sign of a hardware fault."
    BURNED_IN = "BurnedIn", "The card may be pooled: burn-in has not found fault with it. Only where burn-in is on."


class NodeCondition(OpenEnum):
    """Conditions of a GPUNodeState."""

    INVENTORY_COMPLETE = "InventoryComplete", "Every card on the PCI bus is known; otherwise no card is issued."
    VANISHED = (
        "Vanished",
        "The Node, or every card in it, is gone; present only then. When it lasts, the cards are forgotten.",
    )
    DRIVER_MISSING = "DriverMissing", "The GPU driver is absent or does not work."
    TOOLKIT_MISSING = "ToolkitMissing", "Containers cannot be given a card: neither CDI nor a GPU runtime works."
    MONITORING_MISSING = "MonitoringMissing", "Nothing exports metrics of the cards."
    GFD_READY = "GFDReady", "The node carries its GPU feature labels."
    READY_FOR_POOLING = "ReadyForPooling", "The cards of the node may join pools."
    DEGRADED = "Degraded", "The node works, but not as it should; the message says what is wrong."


class PoolCondition(OpenEnum):
    """Conditions of a GPUPool."""

    CONFIGURED = "Configured", "The spec can be carried out, and every node has carried it out."
    READY = "Ready", "Pods that may use the pool can ask for its resources."
    IN_MAINTENANCE = (
        "InMaintenance",
        "Cards are being divided anew; present only then, and the reason says if it is overdue.",
    )
    ACCESSIBLE = "Accessible", "spec.access admits somebody to the pool; RBAC may admit more."
    GUARDED = "Guarded", "Pods that the pool does not admit are refused."
    QUOTAS_HOLD = "QuotasHold", "The limits of spec.quotas hold. Only for pools that have quotas."


class Reason(OpenEnum):
    """Reasons found in conditions."""

    INVENTORY_SYNCED = "InventorySynced", "InventoryComplete: the objects agree with the PCI bus."
    NO_DEVICES_DISCOVERED = "NoDevicesDiscovered", "InventoryComplete: the node reports no card."
    NODE_FEATURE_MISSING = "NodeFeatureMissing", "InventoryComplete: the node has not reported yet."
    BUS_HIDDEN = "BusHidden", "InventoryComplete: the agent can read neither the PCI bus nor a driver."
    NODE_FEATURE_INVALID = "NodeFeatureInvalid", "InventoryComplete: what the node reports makes no sense."
    CARDS_MISSING = "CardsMissing", "InventoryComplete: the PCI bus shows cards that the node does not report."
    BUS_DISAGREES = (
        "BusDisagrees",
        "InventoryComplete: the PCI bus does not show the cards that the driver or Node Feature Discovery sees.",
    )
    CARDS_ELSEWHERE = "CardsElsewhere", "InventoryComplete: another node reports the same cards."
    NODE_GONE = "NodeGone", "InventoryComplete, Vanished: the Node does not exist."
    DRIVER_FOUND = "DriverFound", "DriverMissing: the driver is there."
    DRIVER_NOT_FOUND = "DriverNotFound", "DriverMissing: the node reports no driver."
    TOOLKIT_FOUND = "ToolkitFound", "ToolkitMissing: containers can be given a card."
    TOOLKIT_NOT_FOUND = "ToolkitNotFound", "ToolkitMissing: the node reports no way to give a card to a container."
    MONITORING_FOUND = "MonitoringFound", "MonitoringMissing: metrics of the cards are exported."
    MONITORING_NOT_FOUND = "MonitoringNotFound", "MonitoringMissing: the node reports no exporter."
    MONITORING_NOT_READY = "MonitoringNotReady", "MonitoringMissing: the exporter has not worked for a while."
    FEATURE_LABELS_FOUND = "FeatureLabelsFound", "GFDReady: the labels are there and true."
    FEATURE_LABELS_MISSING = "FeatureLabelsMissing", "GFDReady: the Node has no labels about its cards."
    FEATURE_LABELS_STALE = "FeatureLabelsStale", "GFDReady: the labels say something else than the node reports."
    GFD_NOT_READY = "GFDNotReady", "GFDReady: what writes the labels has not worked for a while."
    VALIDATION_FAILED = "ValidationFailed", "DriverMissing, ToolkitMissing, ReadyForPooling: a check failed."
    VALIDATOR_NOT_PASSED = (
        "ValidatorNotPassed",
        "DriverMissing, ToolkitMissing, ReadyForPooling: the validator's pod does not get past a step.",
    )
    CHECKS_PENDING = "ChecksPending", "ReadyForPooling: the agent or its checks have yet to prove that the node works."
    INVENTORY_INCOMPLETE = "InventoryIncomplete", "ReadyForPooling: not all cards of the node are known."
    DRIVER_NOT_READY = "DriverNotReady", "ReadyForPooling: the driver is absent or does not work."
    TOOLKIT_NOT_READY = "ToolkitNotReady", "ReadyForPooling: containers cannot be given a card."
    AGENT_NOT_READY = "AgentNotReady", "Degraded, ReadyForPooling: the agent has not worked for a while."
    READY = "Ready", "ReadyForPooling: the cards of the node may join pools."
    NOT_MANAGED = (
        "NotManaged",
        "ReadyForPooling, and the other conditions about software: a label of the Node takes it out on purpose.",
    )
    CONFLICTING_DEVICE_PLUGIN = (
        "ConflictingDevicePlugin",
        "Degraded, ReadyForPooling: another device plugin serves the node's cards.",
    )
    DRIVER_RELEASED = (
        "DriverReleased",
        "Degraded, ReadyForPooling: the agent has let go of the driver, for an upgrade say.",
    )
    DRIVER_HUNG = "DriverHung", "Degraded, ReadyForPooling: a call into the driver does not return."
    DUPLICATE_SOURCE = "DuplicateSource", "Degraded: two programs do the same for the node."
    UNDISTURBED = "Undisturbed", "Degraded: nothing is wrong."
    NAME_COLLISION = "NameCollision", "Configured: an older pool has the same resource name."
    LAYOUT_MISMATCH = (
        "LayoutMismatch",
        "Configured: a node's cards cannot be partitioned as ordered; once that is mended, a person confirms it.",
    )
    ORDER_REFUSED = "OrderRefused", "Configured: a node cannot carry out its order; the message says which and why."
    ORDER_FAILED = "OrderFailed", "Configured: the driver of a node refused what was ordered; it is tried again."
    CONFIGURED = "Configured", "Configured: the spec can be carried out, and no node says otherwise."
    CARDS_ON_OFFER = "CardsOnOffer", "Ready: nodes offer cards of the pool."
    NO_CARDS = "NoCards", "Ready: no card is in the pool."
    NOT_OFFERED = "NotOffered", "Ready: cards are in the pool, but no node offers one."
    MAINTENANCE = "Maintenance", "Ready, InMaintenance: cards are being divided anew; the message says how far that is."
    MAINTENANCE_OVERDUE = "MaintenanceOverdue", "InMaintenance: cards are still being divided anew, past the deadline."
    QUOTAS_HOLD = "QuotasHold", "QuotasHold: every namespace has its ResourceQuota and keeps within it."
    QUOTA_NOT_WRITTEN = "QuotaNotWritten", "QuotasHold: a namespace does not have its ResourceQuota yet."
    NAMESPACE_NOT_FOUND = "NamespaceNotFound", "QuotasHold: a namespace with a limit does not exist yet."
    OVER_QUOTA = "OverQuota", "QuotasHold: a namespace holds more than its limit, which was lowered since."
    DELETING = "Deleting", "Ready: the pool is being deleted and waits for its cards."
    ACCESS_GRANTED = "AccessGranted", "Accessible: spec.access admits somebody."
    POLICY_IN_FORCE = "PolicyInForce", "Guarded: the admission policy is there."
    POLICY_MISSING = "PolicyMissing", "Guarded: the admission policy of the release is missing; everybody is admitted."
    NOBODY_ADMITTED = (
        "NobodyAdmitted",
        "Accessible: spec.access names nobody; only the RBAC verb use can admit anybody.",
    )
    ACCESS_LIST_TOO_LONG = (
        "AccessListTooLong",
        "Accessible: the lists in spec.access have no room beside those of older pools; nobody is admitted by them.",
    )
    BURN_IN_WAITING = "Waiting", "BurnedIn: the card will be tested; the message says what it waits for."
    BURNING_IN = "BurningIn", "BurnedIn: the card is being tested."
    BURN_IN_PASSED = "Passed", "BurnedIn: the card was tested, and nothing was wrong."
    IN_SERVICE = "InService", "BurnedIn: the card was in a pool before burn-in was switched on, and was not tested."
    MEMORY_ERRORS = "MemoryErrors", "BurnedIn: the card's memory did not keep what was written to it."
    COMPUTE_ERRORS = "ComputeErrors", "BurnedIn: the card computed something wrong."
    TOO_HOT = "TooHot", "BurnedIn: the card got too hot under load."
    BURN_IN_FAILED = "Failed", "BurnedIn: the test could not be finished; the message says why."
    OTHER_OPERATOR_ACTIVE = "OtherOperatorActive", "Another operator looks after this kind; nothing is written."


class EventReason(OpenEnum):
    """Reasons of Events."""

    DEVICE_DETECTED = "GPUDeviceDetected", "A card has appeared."
    DEVICE_REMOVED = "GPUDeviceRemoved", "A card has left its node."
    DEVICE_REPLACED = "GPUDeviceReplaced", "Another card is at the same address; the approval was dropped."
    DEVICE_MOVED = "GPUDeviceMoved", "A card is at another address of its node; its approval went with it."
    NODE_FORGOTTEN = (
        "GPUNodeForgotten",
        "A Node has been gone for the grace period, or has another name; its cards are forgotten.",
    )
    READY_FOR_POOLING = "ReadyForPooling", "The cards of a node may join pools."
    NOT_READY_FOR_POOLING = "NotReadyForPooling", "The cards of a node may no longer join pools; the note says why."
    DEVICE_ASSIGNED = "GPUDeviceAssigned", "A card has joined a pool."
    DEVICE_RELEASED = "GPUDeviceReleased", "A card has left its pool and is free."
    DEVICE_FAULTED = "GPUDeviceFaulted", "A card has a hardware fault and is out of service."
    DEVICE_RECOVERED = "GPUDeviceRecovered", "A card works again."
    PROGRAM_FAILED = "GPUProgramFailed", "A program failed on a card; the card is not at fault and stays in service."
    HEATING_UP = "GPUHeatingUp", "A card gets hotter and will soon be too hot; it is in service until then."
    MEMORY_ERRORS_RISING = "GPUMemoryErrorsRising", "A card corrects many memory errors; it stays in service."
    ROW_REMAPPED = "GPURowRemapped", "A bad row of a card's memory is replaced at the next reset; it stays in service."
    BURN_IN_PASSED = "GPUBurnInPassed", "A new card was tested, and nothing was wrong."
    BURN_IN_FAILED = "GPUBurnInFailed", "A new card did not pass its test and joins no pool; the note says why."
    APPROVAL_IGNORED = "GPUApprovalIgnored", "A card is approved for a pool that cannot have it; the note says why."
    LABEL_IGNORED = "GPULabelIgnored", "A label of a card has a value without effect; the note says which has one."
    CARDS_WITHOUT_POOL = (
        "GPUCardsWithoutPool",
        "On a GPUNodeState: none of the node's cards is in a pool; the note says what they wait for.",
    )
    ORDER_NOT_CARRIED_OUT = (
        "GPUOrderNotCarriedOut",
        "On a GPUNodeState: a card cannot be offered as ordered; the note says why.",
    )
    CONFLICTING_DEVICE_PLUGIN = (
        "ConflictingDevicePlugin",
        "On a GPUNodeState: another device plugin serves the node's cards; nothing is issued there.",
    )
    POOL_PHASE_CHANGED = "GPUPoolPhaseChanged", "A pool has entered another phase."
    RESERVATION_EXPIRED = (
        "GPUReservationExpired",
        "On a Pod: it did not start while units were reserved for it; others may have them now.",
    )
    POOL_MAINTENANCE = "GPUPoolMaintenance", "The cards of a pool begin to be divided anew, are, or stay as they were."
    POOL_MAINTENANCE_OVERDUE = (
        "GPUPoolMaintenanceOverdue",
        "The cards of a pool are still not divided anew, past the deadline; the note says what it waits for.",
    )
    WAITING_FOR_CARDS = "WaitingForGPU", "On a Pod: it gets no card; the note says why and what to do."
