"""Values of NVIDIA's gpu-operator chart, as values of the charts in its place: ours, and Node Feature Discovery's.

Where each key goes is decided by the mapping of `kubectl gpu migrate values`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.gitops.refusals import RefusedKey
from gpu_control_plane.kube.schema import structural
from gpu_control_plane.kube.schema_faults import faults
from gpu_control_plane.operator.migration.values import BadValues, translate

type Tree = dict[str, Any]

_NFD: Final = "node-feature-discovery"
_SERVED_BY_NFD: Final = ("nfd.enabled", _NFD)
"""Keys that our chart does not have, and the Application of Node Feature Discovery has."""


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    values: Tree
    """For our chart."""
    nfd: Tree | None
    """For the chart of Node Feature Discovery; None without it."""
    refused: tuple[RefusedKey, ...]


def stack_values(given: Mapping[str, Any], file: str) -> Stack:
    """What the values mean here, and the keys that mean nothing here. `BadValues` for what no ClusterPolicy takes."""
    translation = translate(given)
    spec = translation.values["clusterPolicy"].get("spec", {})
    # Else the job that makes the ClusterPolicy would fail, and with it the sync.
    if wrong := [
        f"{file}: {f'{path}: ' if path else ''}{why}" for path, why in faults(spec, structural(ClusterPolicySpec))
    ]:
        raise BadValues("\n".join(wrong))
    said = (given.get("nfd") or {}).get("enabled")
    with_nfd = True if said is None else said
    if not isinstance(with_nfd, bool):
        raise BadValues(f"{file}: nfd.enabled: a boolean is needed here, and this is {with_nfd!r}.")
    if not isinstance(given.get(_NFD), Mapping | None):
        raise BadValues(f"{file}: {_NFD}: this should be a map, as in the chart of Node Feature Discovery.")
    return Stack(
        values=translation.values,
        nfd=dict(given.get(_NFD) or {}) if with_nfd else None,
        refused=tuple(
            RefusedKey(file, note.key, note.why)
            for note in translation.notes
            if not (note.key in _SERVED_BY_NFD or note.key.startswith(f"{_NFD}."))
        ),
    )
