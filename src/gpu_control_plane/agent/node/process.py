"""The agent of one node as a process: what it watches, what it serves, and how the parts are joined."""

import os
import socket
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from gpu_control_plane.agent.backends.interface import Backend
from gpu_control_plane.agent.backends.sysfs import Sysfs, machine_model
from gpu_control_plane.agent.burnin.program import VendorBurnIn, simulated_burn_in
from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.exporter.processes import pod_of
from gpu_control_plane.agent.kubelet.checkpoint import read_checkpoint
from gpu_control_plane.agent.kubelet.container_runtime import ContainerRuntime
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.kubelet.plugins import DevicePlugins
from gpu_control_plane.agent.kubelet.podresources import PodResources
from gpu_control_plane.agent.node.agent import NodeAgent
from gpu_control_plane.agent.node.allocator import Allocator
from gpu_control_plane.agent.node.burnin_runner import BurnInRunner
from gpu_control_plane.agent.node.cdi_spec import CDISpecWriter
from gpu_control_plane.agent.node.components import Clients, Components
from gpu_control_plane.agent.node.exporting import CardMetrics
from gpu_control_plane.agent.node.gather import Views
from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.agent.node.hold_file import HoldFile
from gpu_control_plane.agent.node.labelling import Labeller
from gpu_control_plane.agent.node.metrics import NodeMetrics
from gpu_control_plane.agent.node.node_lock import NodeLock
from gpu_control_plane.agent.node.options import Hardware, Options
from gpu_control_plane.agent.node.pod_cgroups import PodCgroups
from gpu_control_plane.agent.node.publication import NodePublisher
from gpu_control_plane.agent.node.validation_runner import ValidationRunner
from gpu_control_plane.agent.publish import Publisher
from gpu_control_plane.agent.step import RecoveryPolicy, StepSettings
from gpu_control_plane.agent.validator.kernel import SimulatedKernel, VendorKernel
from gpu_control_plane.agent.validator.validator import Validator
from gpu_control_plane.agent.vendors.interface import VendorChecks, VendorSupport
from gpu_control_plane.agent.vendors.registry import on_bus, open_backend, supports_of
from gpu_control_plane.agent.views import (
    MANAGER,
    DeviceView,
    NodeStateView,
    NodeView,
    is_relevant,
)
from gpu_control_plane.api.gpunodestate import Injection, Validation
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.controller import Controller, Requeue
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.runtime import Runtime
from gpu_control_plane.kube.times import utc_now

if TYPE_CHECKING:
    from gpu_control_plane.agent.node.simulation import Simulation

NAME: Final = "gpu-agent"


class _Wakeup:
    """Wakes the agent's controllers for reasons that no cache shows."""

    def __init__(self, node: str) -> None:
        self.key = Key(node)
        self._woken: list[Controller] = []

    def wakes(self, *controllers: Controller) -> None:
        self._woken += controllers

    def __call__(self, *_anything: object) -> None:
        for controller in self._woken:
            controller.enqueue(self.key)

    def node_key(self, _item: Object) -> Iterable[Key]:
        """Everything the agent watches concerns its one node."""
        return (self.key,)


def build(runtime: Runtime, options: Options) -> None:
    """Declare the agent of one node: every watch is about this node alone."""
    wakeup = _Wakeup(options.node)
    views = _views(runtime, options.node)
    own_report = Selection(options.namespace, fields=f"metadata.name={feature_name(options.node)}")
    features = runtime.cache(NodeFeature, own_report)
    metrics = NodeMetrics(runtime.metrics.registry)
    simulation = _simulation(options, views.nodes) if options.hardware is Hardware.SIMULATED else None
    components = _components(runtime, options, views, wakeup=wakeup, metrics=metrics, simulation=simulation)
    clients = Clients(client=runtime.client, applier=runtime.applier(MANAGER), events=runtime.events)
    recovery = RecoveryPolicy(seconds=options.health.recovery_period.total_seconds())
    settings = StepSettings(
        unpooled=options.unpooled, conflicting_resources=options.conflicting_resources, recovery=recovery
    )
    agent = NodeAgent(options.node, views, components, clients, metrics, settings=settings, now=utc_now)
    card_metrics = CardMetrics(options.node, components.watch, lambda: agent.users if options.pod_names else {})
    labeller = Labeller(runtime.client, machine_model(options.host)) if options.labels else None
    reports = Publisher(features, clients.applier, metrics, options.namespace)
    publisher = NodePublisher(options, components, reports, labeller)

    async def publish(_key: Key) -> None:
        node, hardware = views.nodes.get(options.node), components.watch.snapshot
        if node is None or hardware is None or components.watch.released:
            return
        card_metrics.describe(hardware)
        if agent.has_decided:  # Before, what is published would lack what the first step finds out.
            await publisher.publish(node, hardware, agent.advertised)

    async def reconcile(key: Key) -> Requeue | None:
        try:
            return await agent.reconcile(key)
        finally:
            if simulation is not None:
                simulation.occupy(agent.users)
            publishing.enqueue(key)  # What was done may be worth publishing, such as that containers can be served now.

    serving = runtime.controller("node", reconcile, workers=1)
    for view in (views.nodes, views.states, views.devices):
        serving.watch(view, wakeup.node_key, is_relevant)
    publishing = runtime.controller("publication", publish, workers=1)
    publishing.watch(views.nodes, wakeup.node_key, is_relevant).watch(features, wakeup.node_key)
    wakeup.wakes(serving, publishing)
    views.states.on_change(agent.orders.heard)

    runtime.status.alive("driver", components.watch.alive)
    runtime.status.ready("only agent", components.lock.problem)
    services = [components.watch.run, components.plugins.run, lambda: components.pod_cgroups.watch(wakeup)]
    if options.validator:
        services.append(components.validation.run)
    if options.burn_in:
        services.append(components.burn_in.run)
    runtime.service(components.lock.run)
    for service in services:
        runtime.service(partial(_when_only_agent, components.lock, service, wakeup))
    if options.exporter:
        runtime.status.add_metrics(card_metrics.exposition)


async def _when_only_agent(
    lock: NodeLock, service: Callable[[], Coroutine[None, None, None]], wakeup: Callable[[], None]
) -> None:
    """Run a service that touches the node once no other agent does."""
    await lock.wait()
    wakeup()
    await service()


def _views(runtime: Runtime, node: str) -> Views:
    by_name, on_node = Selection(fields=f"metadata.name={node}"), Selection(fields=f"spec.nodeName={node}")
    return Views(
        nodes=runtime.cache(NodeView, by_name),
        states=runtime.cache(NodeStateView, by_name),
        devices=runtime.cache(DeviceView, on_node),
    )


def _components(
    runtime: Runtime,
    options: Options,
    views: Views,
    *,
    wakeup: _Wakeup,
    metrics: NodeMetrics,
    simulation: "Simulation | None",
) -> Components:
    host = HostPaths(options.host)
    watch = HardwareWatch(
        options.node,
        _backend(options, simulation),
        wakeup,
        interval=options.health.probe_interval.total_seconds(),
    )
    vendor = simulation.vendor if simulation is not None else _vendor(watch)
    search = options.driver_search
    checkpoint = partial(read_checkpoint, options.device_plugins)

    def allocated() -> None:
        metrics.allocations.inc()
        wakeup()  # Who holds the unit is learnt before anything can happen to the pod.

    pod_cgroups = PodCgroups(options.host / "sys/fs/cgroup")
    lock = NodeLock(options.state, f"{socket.gethostname()}, process {os.getpid()}")
    allocator = Allocator(
        watch,
        options.injection,
        runtime_variable=lambda: vendor().visible_devices,
        on_allocated=allocated,
        on_obstacle=wakeup,  # The kubelet has forgotten the pod that is in the way, and tells nobody.
        may_allocate=lambda: lock.held,
        living=pod_cgroups.living,
        checkpoint=checkpoint,
        pod_of=_other_pod_of() if simulation is None else lambda _pid: None,
    )
    plugin_metrics = PluginMetrics(runtime.metrics.registry)
    return Components(
        lock=lock,
        watch=watch,
        plugins=DevicePlugins(
            allocator,
            options.device_plugins,
            on_change=wakeup,
            metrics=plugin_metrics,
            may_register=lambda: lock.held,
        ),
        pod_resources=PodResources(options.pod_resources),
        allocator=allocator,
        checkpoint=checkpoint,
        pod_cgroups=pod_cgroups,
        hold_file=HoldFile(options.state),
        cdi_spec=CDISpecWriter(watch, options.cdi, options.injection, _container_edits(options, vendor), host=host),
        validation=ValidationRunner(
            options,
            watch,
            Validator(SimulatedKernel({}) if simulation else VendorKernel(lambda: vendor().kernel_command(search))),
            checks=lambda: _checks(options, vendor(), simulation),
            kernel_step=lambda: vendor().kernel_step,
            container_runtime=_container_runtime(options),
            runtime_handler=lambda: vendor().runtime_handler,
            reported=lambda: _validation(views.states.get(options.node)),
            on_result=wakeup,
            now=utc_now,
        ),
        burn_in=BurnInRunner(
            watch,
            simulated_burn_in if simulation else VendorBurnIn(lambda: vendor().burn_in_command(search)),
            enabled=options.burn_in,
            seconds=options.burn_in_seconds,
            on_result=wakeup,
            now=utc_now,
        ),
    )


def _container_runtime(options: Options) -> ContainerRuntime | None:
    """The runtime of the node. With simulated cards the agent may run beside its node, on a machine whose own runtime
    says nothing: then only one that was named is asked."""
    if options.hardware is Hardware.SIMULATED and options.container_runtime is None:
        return None
    return ContainerRuntime(options.host, options.container_runtime)


def _other_pod_of() -> Callable[[int], str | None]:
    """The pod of a process, unless it is our own: tests of cards are processes of this pod."""
    own = pod_of(os.getpid())

    def other(pid: int) -> str | None:
        found = pod_of(pid)
        return found if found != own else None

    return other


def _backend(options: Options, simulation: "Simulation | None") -> Callable[[], Backend]:
    """How the hardware is opened, each time anew."""
    if simulation is not None:
        return simulation.backend
    return lambda: open_backend(options.driver_search)


def _simulation(options: Options, nodes: Cache[NodeView]) -> "Simulation":
    from gpu_control_plane.agent.node.simulation import Simulation  # noqa: PLC0415 - not on nodes with real cards

    return Simulation(options, nodes)


def _vendor(watch: HardwareWatch) -> Callable[[], VendorSupport]:
    """Whose cards the node has, asked each time: cards may come later."""
    sysfs = Sysfs()

    def vendor() -> VendorSupport:
        cards = watch.snapshot.cards() if watch.snapshot else ()
        return supports_of(cards)[0] if cards else on_bus(sysfs)[0]

    return vendor


def _container_edits(options: Options, vendor: Callable[[], VendorSupport]) -> Callable[[str | None], Edits]:
    simulated, hooks = options.hardware is Hardware.SIMULATED, options.injection is Injection.CDI
    return lambda version: vendor().container_edits(None if simulated else version, options.driver_search, hooks=hooks)


def _checks(options: Options, vendor: VendorSupport, simulation: "Simulation | None") -> VendorChecks:
    found = vendor.checks(options.driver_search, options.validations, options.extra_checks)
    return found if simulation is None else simulation.checks(found)


def _validation(state: NodeStateView | None) -> Validation | None:
    return state.status.validation if state else None
