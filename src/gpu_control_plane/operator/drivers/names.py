"""Names of an NVIDIADriver's objects: the same as NVIDIA's operator gives them, so that its objects are taken over.
Pure.

A DaemonSet's name ends in a short hash of UID and variant, spelled with letters and digits that cannot form a word.
"""

from typing import Final

from gpu_control_plane.api.nvidia.nvidiadriver import DriverType
from gpu_control_plane.operator.stack.variants import Variant

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_DAEMONSET_LIMIT: Final = 63
_OBJECT_LIMIT: Final = 253


def daemonset_name(kind: DriverType, uid: str, variant: Variant) -> str:
    """Name of the DaemonSet for one variant. A long operating system is cut, never the hash."""
    detail = variant.kernel or variant.ostree
    ending = short_hash(f"{uid}-{detail}" if detail else uid)
    beginning = f"nvidia-{kind.value}-driver-{_tag(variant)}"[: _DAEMONSET_LIMIT - len(ending) - 1].rstrip("-.")
    return f"{beginning}-{ending}"


def object_name(kind: DriverType, driver: str, variant: Variant) -> str:
    """Name of the service account and the roles for one operating system."""
    part = "vgpu-manager" if kind is DriverType.VGPU_HOST_MANAGER else f"{kind.value}-driver"
    return f"nvidia-{part}-{driver}-{_tag(variant)}"[:_OBJECT_LIMIT].rstrip("-.")


def probe_name(driver: str) -> str:
    """Name of the start-up probe's ConfigMap: each NVIDIADriver has its own, so none overwrites another's."""
    return f"nvidia-driver-startup-probe-{driver}"[:_OBJECT_LIMIT].rstrip("-.")


def trusted_ca_name(driver: str) -> str:
    """Name of the ConfigMap into which OpenShift writes the certificates it trusts."""
    return f"gpu-operator-trusted-ca-{driver}"[:_OBJECT_LIMIT].rstrip("-.")


def short_hash(text: str) -> str:
    """FNV-1a of 32 bits, in decimal, each digit replaced by a letter."""
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def _tag(variant: Variant) -> str:
    return variant.system.tag.lower() if variant.system is not None else ""
