"""The agent of one node as a process: what it watches, what it serves, and how the parts are joined."""

from collections.abc import Callable, Iterable, Set
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from gpu_control_plane.agent.backends.interface import Backend
from gpu_control_plane.agent.burnin.runner import ProgramRunner, Runner, play
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.plugins import Plugins
from gpu_control_plane.agent.kubelet.podresources import PodResources
from gpu_control_plane.agent.node.burning import Burner
from gpu_control_plane.agent.node.cutting import Cutter
from gpu_control_plane.agent.node.desk import Desk
from gpu_control_plane.agent.node.exporting import CardMetrics
from gpu_control_plane.agent.node.inspection import Inspector
from gpu_control_plane.agent.node.labelling import Labeller
from gpu_control_plane.agent.node.metrics import NodeMetrics
from gpu_control_plane.agent.node.moment import Views
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.node.parts import Hands, Parts
from gpu_control_plane.agent.node.publication import Publication
from gpu_control_plane.agent.node.quiesce import pause_reason
from gpu_control_plane.agent.node.serve import NodeServer
from gpu_control_plane.agent.node.simulation import Simulation
from gpu_control_plane.agent.node.views import LocalNode, LocalPod, NodeState
from gpu_control_plane.agent.node.wardrobe import Wardrobe
from gpu_control_plane.agent.node.watch import HardwareWatch
from gpu_control_plane.agent.publish import Publisher
from gpu_control_plane.agent.recovery import CardHealth, recalled
from gpu_control_plane.agent.units import CardID, ResourceName
from gpu_control_plane.agent.validator.files import StatusFiles
from gpu_control_plane.agent.validator.observe import module_version
from gpu_control_plane.agent.validator.runner import KernelRunner, Proof, SimulatedRunner
from gpu_control_plane.agent.validator.validate import Options as Checks
from gpu_control_plane.agent.validator.validate import Validator
from gpu_control_plane.agent.vendors.nvidia.driver_files import DriverFiles, driver_files, find_driver_library
from gpu_control_plane.agent.vendors.nvidia.hooks import find_hook_program
from gpu_control_plane.agent.vendors.nvidia.labels import machine_model
from gpu_control_plane.agent.views import MANAGER, UNEXPECTED_ADMISSION, Card, matters
from gpu_control_plane.api.gpunodestate import Validation
from gpu_control_plane.api.names import GROUP, DeviceCondition
from gpu_control_plane.api.nodefeature import NAMESPACE, NodeFeature, feature_name
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.controller import Controller, Requeue
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now

NAME: Final = "gpu-agent"

_RECENT: Final = timedelta(minutes=2)


class _Alarm:
    """Wakes the agent's controllers for reasons that no cache shows."""

    def __init__(self, node: str) -> None:
        self.key = Key(node)
        self._woken: list[Controller] = []

    def wakes(self, *controllers: Controller) -> None:
        self._woken += controllers

    def __call__(self, *_anything: object) -> None:
        for controller in self._woken:
            controller.enqueue(self.key)

    def about_us(self, _item: Object) -> Iterable[Key]:
        """Everything the agent watches concerns its one node."""
        return (self.key,)


def build(runtime: Runtime, options: Options) -> None:
    """Declare the agent of one node: every watch is about this node alone."""
    alarm = _Alarm(options.node)
    views = _views(runtime, options.node)
    features = runtime.cache(NodeFeature, Selection(NAMESPACE, fields=f"metadata.name={feature_name(options.node)}"))
    metrics = NodeMetrics(runtime.metrics.registry)
    simulation = Simulation(options, views.nodes) if options.hardware is Hardware.SIMULATED else None
    parts = _parts(runtime, options, views, alarm=alarm, metrics=metrics, simulation=simulation)
    hands = Hands(client=runtime.client, apply=runtime.applier(MANAGER), events=runtime.events)
    server = NodeServer(options.node, views, parts, hands, metrics, unpooled=options.unpooled, now=utc_now)
    card_metrics = CardMetrics(options.node, parts.watch, lambda: server.users)
    labeller = Labeller(runtime.client, machine_model(options.host)) if options.labels else None
    publication = Publication(options, parts, Publisher(features, hands.apply, metrics), labeller)

    async def publish(_key: Key) -> None:
        node, picture = views.nodes.get(options.node), parts.watch.picture
        if node is not None and picture is not None and not parts.watch.quiesced:
            card_metrics.follow(picture)
            if (
                server.looked
            ):  # Else what is published would lack what the first step finds out, and get it back at once.
                await publication.publish(node, picture, server.offering)

    async def serve(key: Key) -> Requeue | None:
        try:
            return await server.reconcile(key)
        finally:
            if simulation is not None:
                simulation.occupy(server.users)
            publishing.enqueue(key)  # What was done may be worth publishing, such as that containers can be served now.

    serving = runtime.controller("node", serve, workers=1)
    serving.watch(views.nodes, alarm.about_us, matters).watch(views.states, alarm.about_us, matters)
    serving.watch(views.cards, alarm.about_us, matters).watch(views.pods, alarm.about_us, matters)
    publishing = runtime.controller("publication", publish, workers=1)
    publishing.watch(views.nodes, alarm.about_us, matters).watch(features, alarm.about_us)
    alarm.wakes(serving, publishing)
    views.states.on_change(server.orders.heard)
    views.pods.on_change(_count_failures(metrics, lambda: {unit.resource for unit in server.offering.units}))

    async def look_after_hardware() -> None:
        await views.cards.synced()
        await views.nodes.synced()
        node = views.nodes.get(options.node)
        if node is not None and pause_reason(node.metadata.labels):
            await parts.watch.let_go()  # Somebody is at work on the driver: an agent that starts must not open it.
        await parts.watch.run()

    for service in (look_after_hardware, parts.plugins.run, *((parts.inspector.run,) if options.validator else ())):
        runtime.service(service)
    if options.burn_in:
        runtime.service(parts.burner.run)
    if options.exporter:
        runtime.status.also(card_metrics.exposition)


def _views(runtime: Runtime, node: str) -> Views:
    by_name, on_node = Selection(fields=f"metadata.name={node}"), Selection(fields=f"spec.nodeName={node}")
    return Views(
        nodes=runtime.cache(LocalNode, by_name),
        states=runtime.cache(NodeState, by_name),
        cards=runtime.cache(Card, on_node),
        pods=runtime.cache(LocalPod, on_node),
    )


def _parts(
    runtime: Runtime,
    options: Options,
    views: Views,
    *,
    alarm: _Alarm,
    metrics: NodeMetrics,
    simulation: Simulation | None,
) -> Parts:
    host = HostPaths(options.host)
    watch = HardwareWatch(options.node, _backend(options, simulation), _recall(views.cards), alarm)
    desk = Desk(watch, options.injection, on_grant=metrics.allocations.inc)
    return Parts(
        watch=watch,
        plugins=Plugins(desk, options.device_plugins, on_change=alarm, metrics=PluginMetrics(runtime.metrics.registry)),
        books=PodResources(options.pod_resources),
        desk=desk,
        cutter=Cutter(watch),
        wardrobe=Wardrobe(
            watch, options.cdi, options.injection, _find_driver(options), host=host, hooks=find_hook_program(host)
        ),
        inspector=Inspector(
            options,
            watch,
            _validator(options),
            find_cuda=lambda: _find_cuda(options),
            held=lambda: _validation(views.states.get(options.node)),
            on_result=alarm,
            now=utc_now,
        ),
        burner=Burner(
            watch,
            _burn_in(options),
            enabled=options.burn_in,
            seconds=options.burn_in_seconds,
            after_checks=options.validator,
            on_result=alarm,
            now=utc_now,
        ),
    )


def _backend(options: Options, simulation: Simulation | None) -> Callable[[], Backend]:
    """How the hardware is taken hold of, each time anew."""
    if simulation is not None:
        return simulation.backend
    from gpu_control_plane.agent.backends.factory import open_backend  # noqa: PLC0415 - loads the vendor's library

    return lambda: open_backend(options.searched_roots, whose=lambda library: options.origin_of(library).source)


def _find_driver(options: Options) -> Callable[[str | None], DriverFiles | None]:
    if options.hardware is Hardware.SIMULATED:
        return lambda _version: None
    return lambda version: driver_files(options.searched_roots, version) if version else None


def _find_cuda(options: Options) -> Path | None:
    """That of the loaded driver; without one any, so that the check can say what is wrong with it."""
    search = partial(find_driver_library, "libcuda.so.1", options.searched_roots)
    return search(version=module_version(options.host)) or search()


def _validator(options: Options) -> Validator:
    simulated = options.hardware is Hardware.SIMULATED

    async def kernel(card: str) -> Proof:
        return await KernelRunner(_find_cuda(options))(card)  # Looked for each time: a driver may come later.

    wanted = Checks(nvidia_fs=options.nvidia_fs, gdrcopy=options.gdrcopy)
    return Validator(SimulatedRunner({}) if simulated else kernel, StatusFiles(options.validations), wanted)


def _burn_in(options: Options) -> Runner:
    return play if options.hardware is Hardware.SIMULATED else ProgramRunner(lambda: _find_cuda(options))


def _validation(state: NodeState | None) -> Validation | None:
    return state.status.validation if state else None


def _recall(cards: Cache[Card]) -> Callable[[CardID], CardHealth]:
    def recall(card: CardID) -> CardHealth:
        known = cards.get(card)
        return recalled(find(known.status.conditions, DeviceCondition.HEALTHY) if known else None)

    return recall


def _count_failures(
    metrics: NodeMetrics, ours: Callable[[], Set[ResourceName]]
) -> Callable[[LocalPod | None, LocalPod | None], None]:
    """Pods that were bound here and could not be given the cards they had been promised.

    What failed while no agent was there counts, too, unless it is long ago: an earlier agent has counted that.
    """

    def count(old: LocalPod | None, new: LocalPod | None) -> None:
        if new is None or not _refused(new, ours()) or (old is not None and _refused(old, ours())):
            return
        created = new.metadata.creation_timestamp
        if old is not None or (created is not None and utc_now() - created < _RECENT):
            metrics.refusals.inc()

    return count


def _refused(pod: LocalPod, ours: Set[ResourceName]) -> bool:
    asked = {name for container in pod.spec.containers for name in container.resources.limits}
    about_us = any(name in ours or name.startswith(f"{GROUP}/") for name in asked)
    return about_us and pod.status.phase == "Failed" and pod.status.reason == UNEXPECTED_ADMISSION
