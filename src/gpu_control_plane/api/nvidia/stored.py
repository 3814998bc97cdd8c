"""The two kinds as a cluster holds them: the spec unread, so that one that cannot be read stops nobody else.

Where NVIDIA's own CRDs are installed, or those of another release, a field may have a type that is not ours. A watch
of these views goes on; `read` says what is wrong with that one object.
"""

import functools
import re
from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicy, ClusterPolicySpec
from gpu_control_plane.api.nvidia.nvidiadriver import NVIDIADriver, NVIDIADriverSpec
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.nvidia.unknown import ineffective_fields, unknown_fields
from gpu_control_plane.kube.objects import Object, Resource

_COMPLAINT: Final = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_WRONG_TYPE: Final = re.compile(r"Expected `(?P<expected>.*)`, got `(?P<given>.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`")


class UnreadableSpec(ValueError):
    """A spec that has another shape than its kind; the message says where and what."""


class ReadSpec[T: msgspec.Struct](msgspec.Struct, frozen=True):
    """A spec, and which of its fields change nothing, as dotted paths."""

    spec: T
    unknown: tuple[str, ...] = ()
    ineffective: tuple[str, ...] = ()


def read_spec[T: msgspec.Struct](raw: msgspec.Raw | bytes, kind: type[T]) -> ReadSpec[T]:
    """The spec of this kind; `UnreadableSpec` if it has another shape."""
    try:
        spec = msgspec.json.decode(raw, type=kind)
        fields = msgspec.json.decode(raw, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise UnreadableSpec(_sentence(str(error))) from None
    return ReadSpec(spec, unknown_fields(fields, kind), ineffective_fields(fields, kind))


class StoredClusterPolicy(Object, frozen=True, kw_only=True):
    """A ClusterPolicy for caches."""

    resource: ClassVar[Resource] = ClusterPolicy.resource

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: StackStatus = StackStatus()

    def read(self) -> ReadSpec[ClusterPolicySpec]:
        """The spec; `UnreadableSpec` if it has another shape. Asking again costs next to nothing."""
        return _policy(bytes(self.spec))


class StoredNVIDIADriver(Object, frozen=True, kw_only=True):
    """An NVIDIADriver for caches."""

    resource: ClassVar[Resource] = NVIDIADriver.resource

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: StackStatus = StackStatus()

    def read(self) -> ReadSpec[NVIDIADriverSpec]:
        """The spec; `UnreadableSpec` if it has another shape. Asking again costs next to nothing."""
        return _driver(bytes(self.spec))


@functools.lru_cache(maxsize=16)
def _policy(raw: bytes) -> ReadSpec[ClusterPolicySpec]:
    return read_spec(raw, ClusterPolicySpec)


@functools.lru_cache(maxsize=256)
def _driver(raw: bytes) -> ReadSpec[NVIDIADriverSpec]:
    return read_spec(raw, NVIDIADriverSpec)


def _sentence(complaint: str) -> str:
    """The decoder's words with the place first, as people write it: `spec.driver.enabled: …`."""
    found = _COMPLAINT.fullmatch(complaint)
    assert found is not None  # noqa: S101 - it matches everything
    place = ".".join(filter(None, ("spec", found["path"])))
    if wrong := _WRONG_TYPE.fullmatch(found["what"]):
        return f"{place}: this is of type {wrong['given']}, and should be {wrong['expected'].removesuffix(' | null')}"
    if missing := _MISSING.fullmatch(found["what"]):
        return f"{place}.{missing['name']}: this is missing"
    return f"{place}: {found['what']}"
