"""What the fields of a ClusterPolicy or an NVIDIADriver may be chosen from, each choice with its meaning."""

from gpu_control_plane.kube.fields import OpenEnum


class Workload(OpenEnum):
    """What a node's cards are for."""

    CONTAINER = "container", "containers use them."
    VM_PASSTHROUGH = "vm-passthrough", "virtual machines get whole cards."
    VM_VGPU = "vm-vgpu", "virtual machines get parts of cards."


class SandboxMode(OpenEnum):
    """What runs the virtual machines."""

    KUBEVIRT = "kubevirt", "KubeVirt."
    KATA = "kata", "Kata Containers."


class KernelModuleType(OpenEnum):
    """Which kernel modules are loaded."""

    AUTO = "auto", "what suits the card and the driver."
    OPEN = "open", "the open ones."
    PROPRIETARY = "proprietary", "the proprietary ones."


class UpdateStrategy(OpenEnum):
    """How pods of a DaemonSet are replaced."""

    ROLLING_UPDATE = "RollingUpdate", "a few at a time."
    ON_DELETE = "OnDelete", "when they are deleted."


class MIGStrategy(OpenEnum):
    """How MIG instances are offered."""

    NONE = "none", "not at all."
    SINGLE = "single", "as nvidia.com/gpu; all instances of a node are alike."
    MIXED = "mixed", "each profile as a resource of its own."


class CCMode(OpenEnum):
    """Confidential computing."""

    ON = "on", "on."
    OFF = "off", "off."
    DEVTOOLS = "devtools", "on, with tools that look inside."


class MIGDefault(OpenEnum):
    """What a node without the label nvidia.com/mig.config gets."""

    ALL_DISABLED = "all-disabled", "MIG is switched off."
    NOTHING = "", "it is left alone."
