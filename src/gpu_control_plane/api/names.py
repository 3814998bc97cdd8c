"""Every annotation, label, condition and reason this project writes or reads, each with its meaning.

Controllers, the console and the reference page take them from here; nothing spells one out a second time.
"""

from typing import Final

from gpu_control_plane.kube.fields import OpenEnum

GROUP: Final = "gpu.deckhouse.io"
VERSION: Final = "v1alpha1"

USE: Final = "use"
"""The RBAC verb on a GPUPool that lets its holder ask for the pool's resources."""


class Annotation(OpenEnum):
    """Annotations. They change by a patch that carries a resourceVersion, never by apply."""

    ASSIGNMENT = (
        f"{GROUP}/assignment",
        "On a GPUDevice: the approval. The value is the pool the card may join; without it the card leaves its pool.",
    )
    HOLD = f"{GROUP}/hold", "On a GPUDevice: keeps automatic approval away from the card. The value says why."
    CLEAR_FAULT = f"{GROUP}/clear-fault", "On a GPUDevice: a person's word that a faulted card has been mended."
    RESERVATION = f"{GROUP}/reservation", "On a Pod: the token under which units were reserved for it."
    CRD_VERSION = f"{GROUP}/crd-version", "On a CRD: the release that installed it; an older one leaves it alone."


class Label(OpenEnum):
    """Labels."""

    IGNORE = f"{GROUP}/ignore", "On a GPUDevice: `true` takes the card out of service."
    POOL = f"{GROUP}/pool", "On a Pod: the pool whose resource it asks for."


class DeviceCondition(OpenEnum):
    """Conditions of a GPUDevice."""

    HEALTHY = "Healthy", "The card answers and shows no sign of a hardware fault."


class NodeCondition(OpenEnum):
    """Conditions of a GPUNodeState."""

    INVENTORY_COMPLETE = "InventoryComplete", "Every card on the PCI bus is known; otherwise nothing is handed out."
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


class Reason(OpenEnum):
    """Reasons found in conditions."""

    INVENTORY_SYNCED = "InventorySynced", "InventoryComplete: the objects agree with the PCI bus."
    NO_DEVICES_DISCOVERED = "NoDevicesDiscovered", "InventoryComplete: the node reports no card."
    NODE_FEATURE_MISSING = "NodeFeatureMissing", "InventoryComplete: the node has not reported yet."
    CONFLICTING_DEVICE_PLUGIN = "ConflictingDevicePlugin", "Degraded: another device plugin serves the node's cards."
    NAME_COLLISION = "NameCollision", "Configured: an older pool has the same resource name."
    OTHER_OPERATOR_ACTIVE = "OtherOperatorActive", "Another operator looks after this kind; nothing is written."


class EventReason(OpenEnum):
    """Reasons of Events about cards."""

    DEVICE_DETECTED = "GPUDeviceDetected", "A card has appeared."
    DEVICE_REMOVED = "GPUDeviceRemoved", "A card has left its node."
    DEVICE_REPLACED = "GPUDeviceReplaced", "Another card is at the same address; the approval was dropped."
