"""How many GPUs a container has, as Ray is told and as the status of a RayCluster counts them. Pure.

A unit of a pool counts as one GPU, whether the pool gives whole cards, MIG instances or turns. Several turns for one
container count as one: they may all be on one card, and Ray would number GPUs that do not exist. Resource names come
from the pools themselves, and none is guessed from a prefix. Where no pool is asked for, KubeRay's rule holds, and
after it names of NVIDIA's device plugin that KubeRay does not know. Cards by claim count where the caller knows what
the claims' templates ask for.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.scheduling import Strategy
from gpu_control_plane.rules.pool_validation import by_age
from gpu_control_plane.rules.ray.amounts import whole_units

GPU_CLASSES: Final = frozenset({"gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"})
"""Classes of devices that are GPUs, of NVIDIA's driver for dynamic resource allocation."""

MOST_MIG_INSTANCES: Final = 7
"""Into how many instances a card can be cut."""

Limits = Mapping[str, int | str]
Claims = Mapping[str, Mapping[str, Any]]
"""Specs of ResourceClaimTemplates, by the template's name: what `spec.spec` of each says."""
NO_CLAIMS: Final[Claims] = {}

_KUBERAY: Final = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb$")
_NVIDIA: Final = re.compile(r"nvidia\.com/(?:gpu|mig-(?:\d+c\.)?\d+g\.\d+gb(?:\.me(?:\.all)?|\.gfx|-me)?)(?:\.shared)?")


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What pods of Ray need to know of a pool."""

    name: str
    resources: tuple[str, ...]
    stem: str = ""
    """What its resources begin with: no resource of its own where each MIG profile has one."""
    age: tuple[float, str] = (0.0, "")
    """Sorts pools the older first."""
    strategy: Strategy = Strategy.BIN_PACK
    topology_key: str | None = None
    deleting: bool = False
    takes_turns: bool = False
    """Its units are turns on cards: several of one container may be turns on one card."""
    totals: Mapping[str, int] = {}
    """Units that the pool has of each resource, whatever has become of them. Empty until its status says so."""
    to_come: int = 0
    """Units, at most, of cards that the pool selects and has not counted yet: they wait for an approval, or for their
    node's agent."""

    @classmethod
    def of(cls, pool: GPUPool) -> "PoolFacts":
        """What a GPUPool says of itself."""
        return cls(
            name=pool.name,
            resources=pool.resource_names,
            stem=pool.resource_name,
            age=by_age(pool),
            strategy=pool.spec.scheduling.strategy,
            topology_key=pool.spec.scheduling.topology_key,
            deleting=pool.deleting,
            takes_turns=pool.spec.allocation.mode is Mode.TIME_SLICE,
            totals={counted.name: counted.total for counted in pool.status.capacity},
            to_come=_cards_to_come(pool) * _most_units_of_a_card(pool),
        )


def _cards_to_come(pool: GPUPool) -> int:
    cards = pool.status.cards
    if cards is None:
        return 0
    if not any(counted.total for counted in pool.status.capacity):
        return cards.selected
    return sum(reason.cards for reason in cards.waiting)


def _most_units_of_a_card(pool: GPUPool) -> int:
    allocation = pool.spec.allocation
    if allocation.mode is Mode.MIG:
        return MOST_MIG_INSTANCES
    return allocation.time_slice.replicas if allocation.time_slice is not None else 1


class PoolResources:
    """The pools of a moment, by resource."""

    def __init__(self, pools: Iterable[PoolFacts] = (), *, gpu_classes: Iterable[str] = GPU_CLASSES) -> None:
        youngest_first = sorted(pools, key=lambda pool: pool.age, reverse=True)
        self._by_resource = {resource: pool for pool in youngest_first for resource in pool.resources}
        self._by_stem = {pool.stem: pool for pool in youngest_first}
        self._gpu_classes = frozenset(gpu_classes)

    def pool(self, resource: str) -> PoolFacts | None:
        """The pool that offers a resource; of several the oldest."""
        return self._by_resource.get(resource)

    def pool_meant(self, resource: str) -> PoolFacts | None:
        """The pool that a resource is about, also where it is only what the pool's resources begin with."""
        return self.pool(resource) or self._by_stem.get(resource)

    def units(self, limits: Limits) -> int:
        """The GPUs of one container by its limits: those of all pools together; without any, the first other GPU
        resource by name, as KubeRay counts."""
        if pooled := self.pools_of(limits):
            turns = self.turns_of(limits)
            return sum(1 if name in turns else units for name, units in pooled.items())
        return _first(limits, is_gpu_of_kuberay) or _first(limits, is_gpu_of_nvidia)

    def pools_of(self, limits: Limits) -> dict[str, int]:
        """The units that one container asks of each pool, by the pool's name."""
        found: dict[str, int] = {}
        for resource in sorted(limits):
            pool, units = self._by_resource.get(resource), whole_units(limits[resource])
            if pool is not None and units:
                found[pool.name] = found.get(pool.name, 0) + units
        return found

    def turns_of(self, limits: Limits) -> dict[str, int]:
        """The turns that one container asks of each pool whose cards take turns, by the pool's name."""
        names = {self._by_resource[resource].name for resource in limits if self._takes_turns(resource)}
        return {name: units for name, units in self.pools_of(limits).items() if name in names}

    def container_gpus(
        self, container: Mapping[str, Any], pod_spec: Mapping[str, Any], claims: Claims = NO_CLAIMS
    ) -> int:
        """The GPUs of one container of a pod: by its limits, and by its claims on devices of GPU classes."""
        resources = container.get("resources") or {}
        return self.units(resources.get("limits") or {}) + self._claimed(resources, pod_spec, claims)

    def pod_gpus(self, pod_spec: Mapping[str, Any], claims: Claims = NO_CLAIMS) -> int:
        """The GPUs of all containers of a pod. A claim that several containers share is one set of devices."""
        containers: list[Mapping[str, Any]] = pod_spec.get("containers") or []
        by_limits = sum(self.units((each.get("resources") or {}).get("limits") or {}) for each in containers)
        shared = {
            (claim.get("name", ""), claim.get("request", ""))
            for each in containers
            for claim in (each.get("resources") or {}).get("claims") or ()
        }
        whole = {name for name, request in shared if not request}
        kept = [{"name": n, "request": r} for n, r in sorted(shared) if not r or n not in whole]
        return by_limits + self._claimed({"claims": kept}, pod_spec, claims)

    def _takes_turns(self, resource: str) -> bool:
        pool = self._by_resource.get(resource)
        return pool is not None and pool.takes_turns

    def _claimed(self, resources: Mapping[str, Any], pod_spec: Mapping[str, Any], claims: Claims) -> int:
        templates = {
            held.get("name"): held.get("resourceClaimTemplateName") for held in pod_spec.get("resourceClaims") or ()
        }
        return sum(
            self._devices(claims.get(templates.get(used.get("name")) or "", {}), used.get("request") or "")
            for used in resources.get("claims") or ()
        )

    def _devices(self, template: Mapping[str, Any], wanted: str) -> int:
        """Devices of GPU classes that a claim comes to, or one request of it. Of alternatives the first counts: which
        one it will be is known when the pod is scheduled."""
        requests = (template.get("devices") or {}).get("requests") or ()
        name, _, _ = wanted.partition("/")
        return sum(self._count(request) for request in requests if not name or request.get("name") == name)

    def _count(self, request: Mapping[str, Any]) -> int:
        asked = request.get("exactly") or next(iter(request.get("firstAvailable") or ()), request)
        if asked.get("deviceClassName") not in self._gpu_classes or asked.get("allocationMode") == "All":
            return 0
        return int(asked.get("count") or 1)


class LivePools:
    """The pools as they are now. Whoever holds a cache of them says what changes."""

    def __init__(self) -> None:
        self._facts: dict[str, PoolFacts] = {}
        self._current: PoolResources | None = None

    def changed(self, old: GPUPool | None, new: GPUPool | None) -> None:
        """A pool has come, changed or gone; in the shape of `Cache.on_change`."""
        if new is not None:
            facts = PoolFacts.of(new)
            if self._facts.get(facts.name) == facts:
                return
            self._facts[facts.name] = facts
        elif old is not None:
            self._facts.pop(old.name, None)
        self._current = None

    @property
    def current(self) -> PoolResources:
        """The same object until something changes that matters."""
        if self._current is None:
            self._current = PoolResources(self._facts.values())
        return self._current


def claim_templates(pod_spec: Mapping[str, Any]) -> frozenset[str]:
    """The ResourceClaimTemplates that a pod is given claims from: what has to be known to count its GPUs."""
    named = (held.get("resourceClaimTemplateName") for held in pod_spec.get("resourceClaims") or ())
    return frozenset(filter(None, named))


def is_gpu_of_kuberay(resource: str) -> bool:
    """Whether KubeRay takes a resource for GPUs."""
    return resource.endswith("gpu") or _KUBERAY.search(resource) is not None


def is_gpu_of_nvidia(resource: str) -> bool:
    """Whether NVIDIA's device plugin gives GPUs, MIG instances or shares of either under this name."""
    return _NVIDIA.fullmatch(resource) is not None


def _first(limits: Limits, chosen: Callable[[str], bool]) -> int:
    return next(_amounts(limits, chosen), 0)


def _amounts(limits: Limits, chosen: Callable[[str], bool]) -> Iterator[int]:
    for resource in sorted(limits):
        if chosen(resource) and (units := whole_units(limits[resource])):
            yield units
