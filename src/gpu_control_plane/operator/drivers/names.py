"""Names of an NVIDIADriver's objects: those that NVIDIA's operator gives them, so that its work is continued. Pure.

A DaemonSet's name ends in a short hash of what it is for. The hash spells its digits with letters and digits that
cannot form a word.
"""

from typing import Final

from gpu_control_plane.api.nvidia.nvidiadriver import DriverType
from gpu_control_plane.operator.stack.variants import Variant

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_DAEMONSET_LIMIT: Final = 63
_OBJECT_LIMIT: Final = 253


def daemonset_name(kind: DriverType, uid: str, place: Variant) -> str:
    """Name of the DaemonSet for one pool. A long system is cut, never the hash."""
    detail = place.kernel or place.ostree
    ending = short_hash(f"{uid}-{detail}" if detail else uid)
    beginning = f"nvidia-{kind.value}-driver-{_tag(place)}"[: _DAEMONSET_LIMIT - len(ending) - 1].rstrip("-.")
    return f"{beginning}-{ending}"


def object_name(kind: DriverType, driver: str, place: Variant) -> str:
    """Name of the service account and the roles for one operating system."""
    part = "vgpu-manager" if kind is DriverType.VGPU_HOST_MANAGER else f"{kind.value}-driver"
    return f"nvidia-{part}-{driver}-{_tag(place)}"[:_OBJECT_LIMIT].rstrip("-.")


def probe_name(driver: str) -> str:
    """Name of the start-up probe's ConfigMap: each NVIDIADriver has its own, so none rewrites another's."""
    return f"nvidia-driver-startup-probe-{driver}"[:_OBJECT_LIMIT].rstrip("-.")


def trusted_ca_name(driver: str) -> str:
    """Name of the ConfigMap into which OpenShift writes the certificates it trusts."""
    return f"gpu-operator-trusted-ca-{driver}"[:_OBJECT_LIMIT].rstrip("-.")


def short_hash(text: str) -> str:
    """FNV-1a of 32 bits, in decimal, each digit by another letter."""
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def _tag(place: Variant) -> str:
    return place.system.tag.lower() if place.system is not None else ""
