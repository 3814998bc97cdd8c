"""Carries out NVIDIADrivers: one controller writes their objects, another one their statuses.

All NVIDIADrivers are reconciled together: which nodes one of them gets depends on what the others select.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import StackReason
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Cache, Key, Requeue, Runtime, Signal
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.predicates import spec_changed
from gpu_control_plane.kube.rate_limit import RateLimit
from gpu_control_plane.kube.sentences import counted
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.cluster_policy import uses_driver_crd
from gpu_control_plane.operator.driver_pods import is_orphan, orphans_changed
from gpu_control_plane.operator.drivers.handover import DriverOwnership, NodeHandover
from gpu_control_plane.operator.drivers.manager_image import keep_manager
from gpu_control_plane.operator.drivers.owner import DriverProblem, ParsedDriver
from gpu_control_plane.operator.drivers.predicates import (
    all_drivers,
    content_changed,
    node_changed,
    owner_uid,
    upgrading,
)
from gpu_control_plane.operator.drivers.prune import outdated_daemonsets
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.drivers.variants import nodes_with_driver, unidentified_nodes
from gpu_control_plane.operator.stack.apply import ApplyResult, ObjectsRefused, ObjectWriter
from gpu_control_plane.operator.stack.daemonset_readiness import DaemonSetReadiness
from gpu_control_plane.operator.stack.driver.driver_spec import from_driver
from gpu_control_plane.operator.stack.events import record_drift_repaired
from gpu_control_plane.operator.stack.live import Live
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.platform import PlatformReader
from gpu_control_plane.operator.stack.render_input import Platform, RenderError

_INTERVAL_SECONDS: Final = 0.3
"""Between two reconciles: a fleet that joins at once is rendered a few times, not once for each node."""
_UPGRADING: Final = "operator.drivers/upgrading"
_ORPHANS: Final = "operator.drivers/orphans"

_log = structlog.get_logger(component="operator.drivers")


class DriverResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reconciling one NVIDIADriver."""

    generation: int
    daemonsets: Sequence[Manifest] = ()
    problem: DriverProblem | None = None
    refused: Mapping[str, str] = {}
    """Why the API server refused an object, by `kind/name`."""
    unidentified: Sequence[str] = ()
    """Nodes that get no driver because their labels do not say which one they need."""
    nodes: int = 0


class DriversController:
    """The controllers of NVIDIADrivers. `reconciled` is fired when `results` are new."""

    def __init__(
        self, runtime: Runtime, stored: Cache[StoredNVIDIADriver], active_policy: ActivePolicy, *,
        ownership: DriverOwnership, writer: ObjectWriter, operands: DaemonSetReadiness, platform: PlatformReader,
    ) -> None:  # fmt: skip
        self.stored = stored
        self.index = ownership.index
        self.results: dict[str, DriverResult] = {}
        self.reconciled = Signal("drivers-reconciled")
        self._client = runtime.client
        self._events = runtime.events
        self._active_policy = active_policy
        self._ownership = ownership
        self._writer = writer
        self._operands = operands
        self._platform = platform
        self._rendered: dict[str, list[Manifest]] = {}
        self._outdated_in_use = False
        """Whether there are DaemonSets that are not asked for, or pods of an older template, that still serve nodes."""
        self._look_again: Requeue | None = None
        self._rate_limit = RateLimit(_INTERVAL_SECONDS)
        active_policy.nodes.index(_UPGRADING, lambda node: (_UPGRADING,) if upgrading(node) else ())
        operands.pods.index(_ORPHANS, lambda pod: (_ORPHANS,) if is_orphan(pod) else ())

        controller = runtime.controller("drivers", self._reconcile, workers=1)
        controller.watch(stored, all_drivers, when=spec_changed)
        controller.watch(active_policy.policies, all_drivers, when=spec_changed)
        controller.watch(active_policy.changed, all_drivers)
        controller.watch(active_policy.nodes, all_drivers, when=node_changed)
        controller.watch(operands.pods, all_drivers, when=orphans_changed)
        controller.watch(operands.changed, all_drivers, when=lambda _old, _new: self._outdated_in_use)
        for cache in writer.live.core():
            controller.watch(cache, all_drivers, when=content_changed)
        NodeHandover(runtime, active_policy, ownership)
        runtime.on_lead(self._forget)

    def pending(self) -> str:
        """Why NVIDIADrivers keep the ClusterPolicy from being ready: upgrades in progress."""
        count = self._active_policy.nodes.count(_UPGRADING, _UPGRADING)
        if not count or not uses_driver_crd(self._active_policy.spec()):
            return ""
        return f"the driver is being upgraded on {counted(count, 'node')}"

    async def _reconcile(self, key: Key) -> Requeue | None:
        if not self._active_policy.may_write():
            return None
        if later := self._rate_limit.wait(key):
            return later
        self._rate_limit.mark(key)
        found = self._active_policy.current()
        if found is not None and found.spec is None:
            return None  # it cannot be read whether drivers come from NVIDIADrivers
        spec = found.spec if found is not None else None
        if uses_driver_crd(spec):
            refused = await self._apply_all(spec)
            if found is None and not self.index.drivers():
                await self._delete_orphans()
        else:
            self._forget()
            refused = await self._remove_all()
        self.reconciled.fire()
        if refused:
            raise ObjectsRefused(_sentence(refused))
        return self._look_again

    async def _apply_all(self, policy: ClusterPolicySpec | None) -> dict[str, str]:
        """Write the objects of all NVIDIADrivers; what the API server refused."""
        drivers, problem = self.index.drivers(), self.index.problem
        specs = (from_driver(driver.spec) for driver in drivers if driver.spec is not None)
        platform = await self._platform.current([name for spec in specs for name in spec.secrets])
        self._look_again = self._platform.look_again(platform)
        self._outdated_in_use = False
        results = {}
        for driver in drivers:
            results[driver.name] = (
                DriverResult(generation=driver.generation, problem=problem, daemonsets=self._last_daemonsets(driver))
                if problem is not None
                else await self._apply(driver, platform, policy)
            )
        self.results = results
        self._rendered = {name: held for name, held in self._rendered.items() if name in results}
        return {name: why for result in results.values() for name, why in result.refused.items()}

    async def _apply(self, driver: ParsedDriver, platform: Platform, policy: ClusterPolicySpec | None) -> DriverResult:
        nodes = nodes_with_driver(driver, self.index.labelled_nodes(driver.name))
        try:
            rendered = render_driver(driver, nodes, platform, policy)
        except RenderError as error:
            problem = DriverProblem(StackReason.RECONCILE_FAILED, str(error))
            return DriverResult(generation=driver.generation, problem=problem, daemonsets=self._last_daemonsets(driver))
        for manifest in _daemonsets(rendered):
            keep_manager(manifest, self._live_daemonset(manifest["metadata"]["name"]))
        result = ApplyResult()
        await self._writer.apply(rendered, result)
        stored, last = self.stored.get(driver.name), self.results.get(driver.name)
        if stored is not None and self._rendered.get(driver.name) == rendered:
            record_drift_repaired(self._events, stored, result, refused=last.refused if last is not None else ())
        self._rendered[driver.name] = rendered
        await self._prune(driver, rendered, nodes, result)
        if result.created or result.repaired or result.removed:
            _log.info(
                "driver objects written",
                driver=driver.name,
                created=len(result.created),
                changed=len(result.repaired),
                removed=len(result.removed),
            )
        refused = result.problems
        return DriverResult(
            generation=driver.generation,
            daemonsets=_daemonsets(rendered),
            problem=DriverProblem(StackReason.RECONCILE_FAILED, _sentence(refused)) if refused else None,
            refused=refused,
            unidentified=unidentified_nodes(nodes, from_driver(driver.spec)) if driver.spec is not None else (),
            nodes=len(nodes),
        )

    async def _prune(
        self, driver: ParsedDriver, rendered: list[Manifest], nodes: Sequence[Node], result: ApplyResult
    ) -> None:
        """Delete what is not needed any more. Objects that a remaining DaemonSet or pod may use stay."""
        names = {manifest["metadata"]["name"] for manifest in _daemonsets(rendered)}
        held = [item for item in self._operands.daemonsets if owner_uid(item) == driver.uid]
        outdated = {item.name: item for item in outdated_daemonsets(held, rendered, nodes)}
        staying = [item.name for item in held if item.name not in names and item.name not in outdated]
        old_pods = any(map(self._runs_old_pods, names))
        self._outdated_in_use = self._outdated_in_use or bool(staying) or old_pods
        in_use = bool(staying or self._orphans()) or old_pods

        def ours(live: Live) -> bool:
            if owner_uid(live) != driver.uid:
                return False
            return live.name in outdated if live.resource.kind == "DaemonSet" else not in_use

        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered}
        await self._writer.prune(
            keep, ours, result, orphan=lambda live: live.name in outdated and outdated[live.name].orphan
        )

    async def _remove_all(self) -> dict[str, str]:
        """The ClusterPolicy brings drivers again: delete the DaemonSets of NVIDIADrivers, but leave their pods, and the
        objects these use, until each node is upgraded. What the API server refused to delete."""

        def daemonset(live: Live) -> bool:
            return live.resource.kind == "DaemonSet"

        in_use, result = self._ownership.have_daemonsets() or bool(self._orphans()), ApplyResult()
        await self._writer.prune(
            set(),
            lambda live: bool(owner_uid(live)) and (daemonset(live) or not in_use),
            result,
            orphan=daemonset,
        )
        return result.problems

    async def _delete_orphans(self) -> None:
        """There is neither a ClusterPolicy nor an NVIDIADriver: delete driver pods that no DaemonSet owns, since no
        upgrade will ever replace them."""
        pods = self._orphans()
        await gather_all(self._delete(pod) for pod in pods)
        if pods:
            _log.info("driver pods without policy deleted", pods=len(pods))

    def _orphans(self) -> list[Pod]:
        return self._operands.pods.by_index(_ORPHANS, _ORPHANS)

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        with suppress(NotFound):
            await self._client.delete(
                Pod, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )

    def _last_daemonsets(self, driver: ParsedDriver) -> Sequence[Manifest]:
        """The DaemonSets that were rendered last for an NVIDIADriver; after a restart those that it has."""
        if driver.name in self._rendered:
            return _daemonsets(self._rendered[driver.name])
        names = sorted(item.name for item in self._operands.daemonsets if owner_uid(item) == driver.uid)
        return [live for name in names if (live := self._live_daemonset(name)) is not None]

    def _runs_old_pods(self, name: str) -> bool:
        """Whether pods of an older template of a DaemonSet may still run, which use what that template names."""
        live = self._writer.live.get("DaemonSet", name)
        return live is not None and self._operands.may_run_old_template(name, live.metadata.generation)

    def _live_daemonset(self, name: str) -> Manifest | None:
        live = self._writer.live.get("DaemonSet", name)
        if live is None:
            return None
        return {"metadata": {"name": name, "annotations": live.metadata.annotations}, **live.body()}

    def _forget(self) -> None:
        self.results, self._rendered, self._look_again = {}, {}, None


def _sentence(refused: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in sorted(refused.items()))


def _daemonsets(manifests: Sequence[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == "DaemonSet"]
