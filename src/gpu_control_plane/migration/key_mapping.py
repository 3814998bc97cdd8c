"""Where a value of an upstream Helm chart goes: the words for the tables of NVIDIA's and KubeRay's charts. Pure."""

import msgspec

from gpu_control_plane.kube.fields import OpenEnum


class KeyMapping(OpenEnum):
    """Where a key goes."""

    SAME = "same", "It goes to the same place in the ClusterPolicy's spec."
    MAPPED = "mapped", "It goes to another place."
    WITHOUT_EFFECT = "without effect", "Nothing here depends on it."
    UNKNOWN = "unknown", "Neither chart has such a value."


class MappingRow(msgspec.Struct, frozen=True):
    """A key of an upstream chart, with everything below it."""

    key: str
    mapping: KeyMapping
    to: str = ""
    why: str = ""
    omit_default: bool = False
    """Whether a value that equals the chart's default is left out: no person has chosen it."""
    always: bool = False
    """Whether it is reported even if it is the chart's default."""

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.key.split("."))


class KeyNote(msgspec.Struct, frozen=True):
    """A key that has no effect here, or is unknown."""

    key: str
    mapping: KeyMapping
    why: str
    value: object = None
