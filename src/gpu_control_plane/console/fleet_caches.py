"""The fleet as the console holds it, and as each person may see it.

The console watches with its own rights. A person sees the kinds they may list, and pods, whether they wait or hold
cards, only of namespaces in which they may list pods.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.console.errors import Unavailable
from gpu_control_plane.console.viewer import Viewer
from gpu_control_plane.kube import Cache, Client, Runtime, Selection
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.pools.explanation_reads import UNSCHEDULED
from gpu_control_plane.views.fleet import Fleet, Missing, asks_for_a_pool

OUR_CONTROLLERS: Final = ("gpu-control-plane", "gpu-agent", "gpu-agent-fleet")
"""The processes whose Events the console shows."""
HIDDEN: Final = "(hidden)"
"""Stands for the namespace and the name of a pod that holds a card and that this person may not know of. No namespace
can have this name: its pods would vanish from the eyes of those who may see them."""
_SCOPES_HELD: Final = 16
"""How many parts of the fleet are kept ready; more people with different rights cost time, not memory."""
_START_SECONDS: Final = 10.0
_PODS: Final = "pods"
_LOOK_AGAIN_SECONDS: Final = 60.0


class FleetScope(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the fleet that somebody may see."""

    hidden: tuple[type[Object], ...] = ()
    """Kinds that they may not list."""
    namespaces: frozenset[str] | None = None
    """Those with GPU pods in which they may list pods; None for somebody who may list all pods."""


class _Whole:
    """Everything, as it was at a version of the caches."""

    def __init__(self, version: int, fleet: Fleet) -> None:
        self.version = version
        self.fleet = fleet

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Those that have pods with cards, or that wait for some. Only asked for where somebody may not see all."""
        users = {user.namespace for card in self.fleet.cards.values() for user in card.status.used_by}
        return frozenset(users | {pod.metadata.namespace or "" for pod in self.fleet.waiting})


class FleetCaches:
    """Caches of everything the console shows. `kinds` are those that a page can follow."""

    def __init__(self, runtime: Runtime) -> None:
        self.cards = runtime.cache(GPUDevice)
        self.states = runtime.cache(GPUNodeState)
        self.pools = runtime.cache(GPUPool)
        self.nodes = runtime.cache(Node)
        self.waiting = runtime.cache(WaitingPod, UNSCHEDULED)
        self.events = tuple(
            runtime.cache(Event, Selection(fields=f"reportingController={name}")) for name in OUR_CONTROLLERS
        )
        policies = DynamicCaches(runtime.unfenced_client, StoredClusterPolicy)
        drivers = DynamicCaches(runtime.unfenced_client, StoredNVIDIADriver)
        self.policies = policies.follow("all")
        self.drivers = drivers.follow("all")
        self.rays = _of_ray(runtime, RayClusterView)
        self.ray_jobs = _of_ray(runtime, RayJobView)
        self.ray_services = _of_ray(runtime, RayServiceView)
        runtime.service(policies.run)
        runtime.service(drivers.run)
        self.kinds: Mapping[type[Object], tuple[Cache[Any], ...]] = {
            GPUDevice: (self.cards,),
            GPUNodeState: (self.states,),
            GPUPool: (self.pools,),
            Node: (self.nodes,),
            WaitingPod: (self.waiting,),
            Event: self.events,
            StoredClusterPolicy: (self.policies,),
            StoredNVIDIADriver: (self.drivers,),
            RayClusterView: (self.rays,),
            RayJobView: (self.ray_jobs,),
            RayServiceView: (self.ray_services,),
        }
        self._version = 0
        for caches in self.kinds.values():
            for cache in caches:
                cache.on_change(self._changed)
        self._whole: _Whole | None = None
        self._parts: dict[FleetScope, tuple[int, Fleet]] = {}

    @property
    def complete(self) -> bool:
        return all(cache.is_synced for cache in self._needed)

    @property
    def _needed(self) -> tuple[Cache[Any], ...]:
        return self.cards, self.states, self.pools, self.nodes, self.waiting, *self.events

    def whole(self) -> Fleet:
        """Everything, at this moment. `Unavailable` while the caches are not complete."""
        return self._latest().fleet

    async def scope_of(self, viewer: Viewer) -> FleetScope:
        """Which part of the fleet this person may see. Who comes while the console starts waits a moment."""
        if not self.complete:
            with suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    await asyncio.gather(*(cache.synced() for cache in self._needed))
        hidden = [kind for kind in _HIDE if not await viewer.may("list", kind)]
        if await viewer.may("list", _PODS):
            return FleetScope(hidden=tuple(hidden))
        namespaces = self._latest().namespaces
        visible = await viewer.namespaces_with("list", _PODS, namespaces)
        return FleetScope(hidden=tuple(hidden), namespaces=visible)

    async def seen_by(self, viewer: Viewer) -> Fleet:
        """What this person may see. People who may see the same share it."""
        scope = await self.scope_of(viewer)
        whole = self._latest()
        held = self._parts.get(scope)
        if held is None or held[0] != whole.version:
            held = whole.version, in_scope(whole.fleet, scope)
            if scope not in self._parts and len(self._parts) >= _SCOPES_HELD:
                del self._parts[next(iter(self._parts))]
            self._parts[scope] = held
        return held[1]

    def _latest(self) -> "_Whole":
        if self._whole is None or self._whole.version != self._version:
            self._whole = _Whole(self._version, self._snapshot())
        return self._whole

    def _snapshot(self) -> Fleet:
        if not self.complete:
            raise Unavailable("The console is starting: it is still reading the cluster. Try again in a moment.")
        pools = {pool.name: pool for pool in self.pools}
        return Fleet(
            cards={card.name: card for card in self.cards},
            states={state.name: state for state in self.states},
            pools=pools,
            nodes={node.name: node for node in self.nodes},
            waiting=[pod for pod in self.waiting if asks_for_a_pool(pod, pools)],
        )

    def _changed(self, _old: Object | None, _new: Object | None) -> None:
        self._version += 1


def in_scope(fleet: Fleet, scope: FleetScope) -> Fleet:
    """What is left of the fleet for somebody with this scope."""
    if scope.namespaces is not None:
        fleet = mask_pods(fleet, scope.namespaces)
    for kind in scope.hidden:
        fleet = _HIDE[kind](fleet)
    return fleet


def _of_ray[T: Object](runtime: Runtime, kind: type[T]) -> Cache[T]:
    """All objects of a kind of Ray, once the cluster has it."""
    caches = DynamicCaches(runtime.unfenced_client, kind)
    runtime.service(lambda: _once_installed(runtime.unfenced_client, kind, caches.run))
    return caches.follow("all")


async def _once_installed(client: Client, kind: type[Object], run: Callable[[], Awaitable[None]]) -> None:
    """Run it when the cluster has the kind: most have no Ray, and a watch would complain all the time."""
    while True:
        try:
            await client.list(kind)
        except KubeError:
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        else:
            await run()
            return


def mask_pods(fleet: Fleet, visible: frozenset[str]) -> Fleet:
    """The fleet for somebody who may list pods in these namespaces only: units that others hold still count."""
    cards = {name: _masked_card(card, visible) for name, card in fleet.cards.items()}
    waiting = [pod for pod in fleet.waiting if pod.metadata.namespace in visible]
    return msgspec.structs.replace(fleet, cards=cards, waiting=waiting)


def _masked_card(card: GPUDevice, visible: frozenset[str]) -> GPUDevice:
    held = card.status.reservation
    hides_reservation = held is not None and held.holder.partition("/")[0] not in visible
    if not hides_reservation and all(user.namespace in visible for user in card.status.used_by):
        return card
    users = tuple(
        user
        if user.namespace in visible
        else msgspec.structs.replace(user, namespace=HIDDEN, pod=HIDDEN, container=HIDDEN)
        for user in card.status.used_by
    )
    reservation = msgspec.structs.replace(held, token=HIDDEN, holder=HIDDEN) if hides_reservation and held else held
    status = msgspec.structs.replace(card.status, used_by=users, reservation=reservation)
    return msgspec.structs.replace(card, status=status)


def _without(kind: type[Object], **empty: object) -> Callable[[Fleet], Fleet]:
    name = kind.resource.qualified_name
    missing = Missing(kind=name, why=f"you may not list {name}")

    def hide(fleet: Fleet) -> Fleet:
        return msgspec.structs.replace(fleet, missing=(*fleet.missing, missing), **empty)

    return hide


_HIDE: Final[Mapping[type[Object], Callable[[Fleet], Fleet]]] = {
    GPUDevice: _without(GPUDevice, cards={}),
    GPUNodeState: _without(GPUNodeState, states={}),
    GPUPool: _without(GPUPool, pools={}),
    Node: _without(Node, nodes={}),
}
