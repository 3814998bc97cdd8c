"""Hashes by which a change is told from none.

Both are KubeRay's, for what they decide: whether a cluster is made anew as a whole. Their values are not KubeRay's: it
hashes its own types in its own order. The hash of single pods is in `template_hash`.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayClusterSpec

_SCALING: Final = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
_INJECTED: Final = ("tolerations", "schedulingGates")
"""Parts of a pod's spec that other controllers, such as Kueue, add after the object was made."""


def recreate_hash(spec: RayClusterSpec) -> str:
    """What a cluster is made of, but for how many workers it has: the value of `Annotation.RECREATE_HASH`."""
    return digest(_without_scaling(spec))


def spec_hash(spec: RayClusterSpec) -> str:
    """The same without `suspend`: the value of `Annotation.SPEC_HASH`, by which a RayService finds a change."""
    plain = _without_scaling(spec)
    plain.pop("suspend", None)
    return digest(plain)


def _without_scaling(spec: RayClusterSpec) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    plain.pop("upgradeStrategy", None)
    plain["headGroupSpec"] = _without_injected(plain["headGroupSpec"])
    plain["workerGroupSpecs"] = [_without_injected(group) for group in plain.get("workerGroupSpecs") or ()]
    return plain


def _without_injected(group: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in group.items() if key not in _SCALING}
    template = dict(kept["template"])
    if "spec" in template:
        template["spec"] = {key: value for key, value in template["spec"].items() if key not in _INJECTED}
    kept["template"] = template
    strategy = {
        key: value for key, value in (kept.pop("scaleStrategy", None) or {}).items() if key != "workersToDelete"
    }
    if strategy:
        kept["scaleStrategy"] = strategy
    return kept


def digest(value: object) -> str:
    """A name for a value that is made of maps, lists and text."""
    encoded = msgspec.json.encode(value, order="deterministic")
    return base64.b32hexencode(hashlib.sha1(encoded, usedforsecurity=False).digest()).decode()
