"""What a Pod is given so that the scheduler places it as its pool wishes. Pure edits of its spec.

Only preferences, and tolerations for the pool's own taints: nothing keeps a Pod from a node that could run it. No node
affinity is added: only nodes that offer the resource can take the Pod, and the scheduler prefers and spreads among
those alone. What the Pod says already stays.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.scheduling import DEFAULT_TOPOLOGY_KEY, Strategy, Taint
from gpu_control_plane.kube.json_patch import Json

_HOSTNAME: Final = "kubernetes.io/hostname"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_ANYWAY: Final = "ScheduleAnyway"
_STRONGEST: Final = 100


class Malformed(Exception):
    """The document is no Pod: the API server will refuse it."""


def add_hints(spec: dict[str, Json], main: GPUPool, pools: Iterable[GPUPool]) -> None:
    """Tolerations for the taints of all its pools; where it is put follows the strategy of one, `main`."""
    for pool in pools:
        for taint in pool.spec.scheduling.taints:
            _add_toleration(_member_list(spec, "tolerations"), taint)
    if main.spec.scheduling.strategy is Strategy.BIN_PACK:
        affinity = member_object(member_object(spec, "affinity"), "podAffinity")
        _add_once(_member_list(affinity, _PREFERRED), _near_others(main))
    else:
        constraints = _member_list(spec, "topologySpreadConstraints")
        for key in _spread_keys(main):
            _add_constraint(constraints, key, main)


def member_object(parent: dict[str, Json], name: str) -> dict[str, Json]:
    """The object in a field, made where there is none."""
    held = parent.get(name)
    if held is None:
        held = parent[name] = {}
    if not isinstance(held, dict):
        raise Malformed
    return held


def _member_list(parent: dict[str, Json], name: str) -> list[Json]:
    held = parent.get(name)
    if held is None:
        held = parent[name] = []
    if not isinstance(held, list):
        raise Malformed
    return held


def _add_once(members: list[Json], wanted: Json) -> None:
    if wanted not in members:
        members.append(wanted)


def _add_toleration(tolerations: list[Json], taint: Taint) -> None:
    if any(_tolerates(held, taint) for held in _objects(tolerations)):
        return
    wanted: dict[str, Json] = {"key": taint.key, "effect": taint.effect.value}
    tolerations.append({**wanted, "operator": "Equal", "value": taint.value or ""})


def _tolerates(toleration: dict[str, Json], taint: Taint) -> bool:
    """As Kubernetes sees it: no key and no effect stand for any."""
    if toleration.get("effect") not in (None, "", taint.effect.value):
        return False
    exists = toleration.get("operator") == "Exists"
    if toleration.get("key") in (None, ""):
        return exists
    return toleration["key"] == taint.key and (exists or (toleration.get("value") or "") == (taint.value or ""))


def _near_others(pool: GPUPool) -> Json:
    """Pods of every namespace count: they fill the same nodes."""
    return {
        "weight": _STRONGEST,
        "podAffinityTerm": {
            "topologyKey": _HOSTNAME,
            "labelSelector": _pods_of(pool),
            "namespaceSelector": {},
        },
    }


def _spread_keys(pool: GPUPool) -> tuple[str, ...]:
    """A key that is named counts alone: spread over nodes, too, pods would be drawn to the zone with the most."""
    key = pool.spec.scheduling.topology_key
    return (key,) if key else (DEFAULT_TOPOLOGY_KEY, _HOSTNAME)


def _add_constraint(constraints: list[Json], key: str, pool: GPUPool) -> None:
    """Kubernetes refuses two soft constraints for one key: one that the Pod has is left as it is."""
    if any(
        held.get("topologyKey") == key and held.get("whenUnsatisfiable") == _ANYWAY for held in _objects(constraints)
    ):
        return
    constraints.append(
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": _ANYWAY, "labelSelector": _pods_of(pool)}
    )


def _pods_of(pool: GPUPool) -> dict[str, Json]:
    return {"matchLabels": {Label.POOL.value: pool.name}}


def _objects(members: list[Json]) -> Iterator[dict[str, Json]]:
    for member in members:
        if not isinstance(member, dict):
            raise Malformed
        yield member
