"""Carries out NVIDIADrivers: one controller brings their objects into the cluster, another one reports.

All of them are looked at together: what one of them may have depends on what the others select.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import StackReason
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube import Key, Requeue, Runtime
from gpu_control_plane.kube.changes import spec_changed
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.rate_limit import RateLimit
from gpu_control_plane.operator.active_policy import Charge
from gpu_control_plane.operator.drivers.abandoned import came_or_went, without_owner
from gpu_control_plane.operator.drivers.handover import Moves
from gpu_control_plane.operator.drivers.manager_image import keep_manager
from gpu_control_plane.operator.drivers.owner import Driver, Trouble
from gpu_control_plane.operator.drivers.ownership_index import OwnerBook
from gpu_control_plane.operator.drivers.predicates import (
    ALL,
    all_of_them,
    asked_for,
    node_changed,
    owner_uid,
    touched,
    upgrading,
)
from gpu_control_plane.operator.drivers.prune import stale
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.drivers.variants import left_out, nodes_of
from gpu_control_plane.operator.labelling.decide import OwnerWish
from gpu_control_plane.operator.stack.apply import Applied, NotWritten, Writer
from gpu_control_plane.operator.stack.daemonset_readiness import Standings
from gpu_control_plane.operator.stack.driver.driver_spec import from_driver
from gpu_control_plane.operator.stack.events import tell_repaired
from gpu_control_plane.operator.stack.images import NoImage
from gpu_control_plane.operator.stack.live import Live
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import CannotRender, Platform
from gpu_control_plane.operator.upgrade.groups import Campaign
from gpu_control_plane.operator.views import OperandPod

_PAUSE: Final = 0.3
"""Seconds between two passes: a fleet that joins at once is rendered a few times, not once for each node."""
_UPGRADING: Final = "operator.drivers/upgrading"
_OWNED: Final = "operator.drivers/owned"
_OWNERLESS: Final = "operator.drivers/ownerless"

_log = structlog.get_logger(component="operator.drivers")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What carrying out one NVIDIADriver came to."""

    generation: int
    daemonsets: Sequence[Manifest] = ()
    trouble: Trouble | None = None
    refused: Mapping[str, str] = {}
    """Why the API server did not take an object, by `kind/name`."""
    left_out: Sequence[str] = ()
    nodes: int = 0


class Drivers:
    """The controller of NVIDIADrivers, and what they say to labelling and to upgrades."""

    def __init__(
        self, runtime: Runtime, charge: Charge, writer: Writer, standings: Standings, platform: Callable[[], Platform]
    ) -> None:
        self._runtime = runtime
        self._charge = charge
        self._writer = writer
        self._standings = standings
        self._platform = platform
        self.stored = runtime.cache(StoredNVIDIADriver)
        self.book = OwnerBook(self.stored, charge.nodes)
        self._moves = Moves(runtime, charge, standings, self.book, lambda: asked_for(self._policy()))
        self.results: dict[str, Result] = {}
        self.on_result: Callable[[], None] = lambda: None
        self._rendered: dict[str, list[Manifest]] = {}
        self._leftovers = False
        self._pace = RateLimit(_PAUSE)
        charge.nodes.index(_UPGRADING, lambda node: (_UPGRADING,) if upgrading(node) else ())
        standings.daemonsets.index(_OWNED, lambda item: (_OWNED,) if owner_uid(item) else ())
        standings.pods.index(_OWNERLESS, lambda pod: (_OWNERLESS,) if without_owner(pod) else ())
        self._controller = runtime.controller("drivers", self._converge, workers=1)
        self._controller.watch(self.stored, all_of_them, when=spec_changed)
        self._controller.watch(charge.policies, all_of_them, when=spec_changed)
        self._controller.watch(charge.nodes, all_of_them, when=node_changed)
        self._controller.watch(standings.pods, all_of_them, when=came_or_went)
        for cache in writer.watched():
            self._controller.watch(cache, all_of_them, when=touched)
        self.book.on_change(self.wake)
        standings.on_change(self._look_for_leftovers)
        runtime.on_lead(self._forget)

    def wake(self) -> None:
        """Something changed that no cache shows."""
        self._controller.enqueue(ALL)
        self._moves.wake()

    def owner(self, node: Node) -> OwnerWish | None:
        """The NVIDIADriver that a node should belong to; None while nobody can say, or a move would cost its driver."""
        wish = self.book.owner(node)
        return None if wish is not None and wish.name and self._moves.unprepared(node, wish.name) else wish

    def campaigns(self) -> Sequence[Campaign]:
        """The upgrade policy of each, and its nodes."""
        return self.book.campaigns()

    def leaving(self) -> bool:
        """Whether DaemonSets of NVIDIADrivers are still there although the ClusterPolicy asks for none."""
        return self._standings.daemonsets.count(_OWNED, _OWNED) > 0 and not asked_for(self._policy())

    def pending(self) -> str:
        """Why NVIDIADrivers keep the ClusterPolicy from being ready: upgrades that are under way."""
        count = self._charge.nodes.count(_UPGRADING, _UPGRADING)
        if not count or not asked_for(self._policy()):
            return ""
        return f"the driver of {count} {'node is' if count == 1 else 'nodes are'} being upgraded"

    async def _converge(self, key: Key) -> Requeue | None:
        if not self._charge.may_write():
            return None
        if later := self._pace.wait(key):
            return later
        self._pace.mark(key)
        found = self._charge.in_force()
        if found is not None and found.spec is None:
            return None  # whether drivers are to come from here cannot be read at the moment
        policy = self._policy()
        if asked_for(policy):
            refused = await self._bring_all(policy)
            if found is None and not self.book.drivers():
                await self._clear_away()
        else:
            self._forget()
            refused = await self._hand_back()
        self.on_result()
        if refused:
            raise NotWritten(_sentence(refused))
        return None

    def _policy(self) -> ClusterPolicySpec | None:
        found = self._charge.in_force()
        return found.spec if found is not None else None

    async def _bring_all(self, policy: ClusterPolicySpec | None) -> dict[str, str]:
        """Bring the objects of all of them; what the API server did not take."""
        drivers, trouble, platform = self.book.drivers(), self.book.trouble, self._platform()
        self._leftovers = False
        results = {}
        for driver in drivers:
            results[driver.name] = (
                Result(generation=driver.generation, trouble=trouble, daemonsets=self._known(driver))
                if trouble is not None
                else await self._bring(driver, platform, policy)
            )
        self.results = results
        self._rendered = {name: held for name, held in self._rendered.items() if name in results}
        return {name: why for result in results.values() for name, why in result.refused.items()}

    async def _bring(self, driver: Driver, platform: Platform, policy: ClusterPolicySpec | None) -> Result:
        nodes = nodes_of(driver, self.book.carrying(driver.name))
        try:
            made = render_driver(driver, nodes, platform, policy)
        except (CannotRender, NoImage) as error:
            trouble = Trouble(StackReason.RECONCILE_FAILED, str(error))
            return Result(generation=driver.generation, trouble=trouble, daemonsets=self._known(driver))
        for manifest in _daemonsets(made):
            keep_manager(manifest, self._live(manifest["metadata"]["name"]))
        applied = Applied()
        await self._writer.apply(made, applied)
        stored, last = self.stored.get(driver.name), self.results.get(driver.name)
        if stored is not None and self._rendered.get(driver.name) == made:
            tell_repaired(self._runtime.events, stored, applied, refused=last.refused if last is not None else ())
        self._rendered[driver.name] = made
        await self._prune(driver, made, nodes, applied)
        if applied.created or applied.repaired or applied.removed:
            _log.info(
                "driver written",
                driver=driver.name,
                created=len(applied.created),
                changed=len(applied.repaired),
                removed=len(applied.removed),
            )
        refused = applied.problems
        return Result(
            generation=driver.generation,
            daemonsets=_daemonsets(made),
            trouble=Trouble(StackReason.RECONCILE_FAILED, _sentence(refused)) if refused else None,
            refused=refused,
            left_out=left_out(nodes, from_driver(driver.spec)) if driver.spec is not None else (),
            nodes=len(nodes),
        )

    async def _prune(self, driver: Driver, made: list[Manifest], nodes: Sequence[Node], applied: Applied) -> None:
        """Remove what is no longer needed. What a DaemonSet or a pod that stays may use stays with it."""
        names = {manifest["metadata"]["name"] for manifest in _daemonsets(made)}
        held = [item for item in self._standings.daemonsets if owner_uid(item) == driver.uid]
        going = {item.name: item for item in stale(held, made, nodes)}
        staying = [item.name for item in held if item.name not in names and item.name not in going]
        self._leftovers = self._leftovers or bool(staying)
        in_use = bool(staying or self._ownerless())

        def ours(live: Live) -> bool:
            if owner_uid(live) != driver.uid:
                return False
            return live.name in going if live.resource.kind == "DaemonSet" else not in_use

        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in made}
        await self._writer.prune(
            keep, ours, applied, orphan=lambda live: live.name in going and going[live.name].orphan
        )

    async def _hand_back(self) -> dict[str, str]:
        """The ClusterPolicy brings drivers again: ours go, but their pods run, and keep their accounts, until each node
        is upgraded. What the API server did not let go."""

        def daemonset(live: Live) -> bool:
            return live.resource.kind == "DaemonSet"

        in_use, applied = self._standings.daemonsets.count(_OWNED, _OWNED) > 0 or bool(self._ownerless()), Applied()
        await self._writer.prune(
            set(),
            lambda live: bool(owner_uid(live)) and (daemonset(live) or not in_use),
            applied,
            orphan=daemonset,
        )
        return applied.problems

    async def _clear_away(self) -> None:
        """Nobody asks for a driver any more: pods that a hand-over had left behind go as well."""
        pods = self._ownerless()
        await gather_all(self._delete(pod) for pod in pods)
        if pods:
            _log.info("drivers removed that nobody asks for", pods=len(pods))

    def _ownerless(self) -> list[OperandPod]:
        return self._standings.pods.by_index(_OWNERLESS, _OWNERLESS)

    async def _delete(self, pod: OperandPod) -> None:
        meta = pod.metadata
        with suppress(NotFound):
            await self._runtime.client.delete(
                OperandPod, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )

    def _known(self, driver: Driver) -> Sequence[Manifest]:
        """The DaemonSets of the last time that an NVIDIADriver could be carried out; after a restart those it has."""
        if driver.name in self._rendered:
            return _daemonsets(self._rendered[driver.name])
        names = sorted(item.name for item in self._standings.daemonsets if owner_uid(item) == driver.uid)
        return [live for name in names if (live := self._live(name)) is not None]

    def _live(self, name: str) -> Manifest | None:
        live = self._writer.live("DaemonSet", name)
        if live is None:
            return None
        return {"metadata": {"name": name, "annotations": live.metadata.annotations}, **live.body()}

    def _forget(self) -> None:
        self.results, self._rendered = {}, {}

    def _look_for_leftovers(self) -> None:
        if self._leftovers:
            self.wake()


def _sentence(refused: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in sorted(refused.items()))


def _daemonsets(manifests: Sequence[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == "DaemonSet"]
