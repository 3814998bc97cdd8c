"""A node with cards whose agent the test plays, and the controllers that work on it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec

from fault_proxy import FaultProxy, Request
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane import bootstrap, inventory
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool, inventory_id
from gpu_control_plane.api.examples import h200, pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.gpunodestate import (
    AgentFunctions,
    Driver,
    Injection,
    Monitoring,
    MonitoringSource,
    StepResult,
    Toolkit,
    Validation,
    ValidationStep,
)
from gpu_control_plane.api.names import Annotation, DeviceCondition, NodeCondition, Reason
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import (
    NODE_LABEL,
    NodeFacts,
    NodeFeature,
    NodeFeatureSpec,
    feature_name,
    node_feature,
)
from gpu_control_plane.kube import Client, Condition, FieldManager, Runtime, Selection
from gpu_control_plane.kube.conditions import condition, find
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.times import utc_now
from waiting import until, until_async

AGENT = FieldManager("test-agent")
DEFAULTS = inventory.Settings()
BOOTSTRAP_DEFAULTS = bootstrap.Settings()
NO_CHECKS = AgentFunctions(labels=False, checks=False, burn_in=False, exporter=True)
FACTS = NodeFacts(
    bus_cards=0,
    driver=Driver(version="580.159.04"),
    toolkit=Toolkit(injection=Injection.CDI),
    monitoring=Monitoring(source=MonitoringSource.AGENT),
    agent=NO_CHECKS,
)
"""What the agent of a test reports, by default: it checks nothing, so that its Pod need not have results."""
CHECKING = msgspec.structs.replace(FACTS, agent=msgspec.structs.replace(NO_CHECKS, checks=True))
LABELLING = msgspec.structs.replace(FACTS, agent=msgspec.structs.replace(NO_CHECKS, labels=True))


class Machine:
    """One node. Its `name` is its own, so that requests about it can be counted."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def cards(self, count: int) -> tuple[Hardware, ...]:
        return tuple(h200(self.name, index, count) for index in range(count))

    async def register(self, *, ready: bool = False, labels: dict[str, str] | None = None) -> None:
        await self.client.create(Node, {"metadata": {"name": self.name, "labels": labels or {}}})
        if ready:
            await self.set_ready()

    async def set_ready(self) -> None:
        """Its kubelet answers."""
        flags = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await self.client.patch(Node, self.name, flags, subresource="status")

    async def unregister(self) -> None:
        await self.client.delete(Node, self.name)

    async def report(self, cards: Iterable[Hardware], *, bus: int | None = None, facts: NodeFacts = FACTS) -> None:
        """The agent reports these cards. `bus` cards are on the bus, at the first addresses; by default those."""
        cards = tuple(cards)
        places = tuple(card.pci for card in (cards if bus is None else self.cards(bus)))
        facts = msgspec.structs.replace(facts, bus_cards=len(places), bus=places)
        await self.publish(node_feature(self.name, facts, cards))

    async def check(self, driver: str = "580.159.04") -> None:
        """The agent has checked its node with this driver, and every check passed."""
        passed = tuple(ValidationStep(name=name, result=StepResult.PASSED) for name in ("driver", "toolkit", "cuda"))
        found = msgspec.to_builtins(Validation(driver_version=driver, steps=passed))
        body = {"status": {"validation": found}}
        await self.client.apply(GPUNodeState, self.name, body, manager=AGENT, subresource="status")

    async def publish(self, spec: NodeFeatureSpec) -> None:
        body = {"metadata": {"labels": {NODE_LABEL: self.name}}, "spec": msgspec.to_builtins(spec)}
        await self.client.apply(NodeFeature, feature_name(self.name), body, manager=AGENT, namespace=NAMESPACE)

    async def feature_exists(self) -> bool:
        try:
            await self.client.get(NodeFeature, feature_name(self.name), NAMESPACE)
        except NotFound:
            return False
        return True

    async def devices(self) -> dict[str, GPUDevice]:
        found = await self.client.list(GPUDevice, Selection(fields=f"spec.nodeName={self.name}"))
        return {device.spec.pci_address: device for device in found}

    async def device(self, index: int) -> GPUDevice:
        return await self.client.get(GPUDevice, inventory_id(self.name, pci_address(index)))

    async def approve(self, index: int, pool: str = "training") -> None:
        name = inventory_id(self.name, pci_address(index))
        await self.client.patch(GPUDevice, name, {"metadata": {"annotations": {Annotation.ASSIGNMENT.value: pool}}})

    async def add_pool(self, cards: int) -> str:
        """A pool for these of its cards and no others. Writes about it are not writes about the machine."""
        name = f"pool-{self.name.rpartition('-')[2]}"
        ids = [inventory_id(self.name, pci_address(index)) for index in range(cards)]
        spec = {"deviceSelector": {"include": {"inventoryIDs": ids}}}
        await self.client.create(GPUPool, {"metadata": {"name": name}, "spec": spec})
        return name

    async def until_pending(self, *reasons: str) -> None:
        """Wait until the cards are pending for these reasons, in the order of their addresses."""

        async def pending() -> bool:
            state = await self.state()
            pools = state.status.pools if state is not None else None
            return pools is not None and [card.reason for card in pools.pending] == list(reasons)

        await until_async(pending, saying=f"pending on {self.name}: {reasons}")

    async def are_healthy(self) -> None:
        """Its agent reports that all of its cards are healthy."""
        healthy = condition((), DeviceCondition.HEALTHY, True, Reason.READY, "It works.", now=utc_now())
        for device in (await self.devices()).values():
            body = {"status": {"conditions": [msgspec.to_builtins(healthy)]}}
            await self.client.patch(GPUDevice, device.name, body, subresource="status")

    async def orders(self) -> list[str]:
        """Addresses of the cards in its assignments."""
        state = await self.state()
        ordered = {order.inventory_id for order in state.spec.assignments} if state is not None else set()
        return sorted(address for address, device in (await self.devices()).items() if device.name in ordered)

    async def state(self) -> GPUNodeState | None:
        try:
            return await self.client.get(GPUNodeState, self.name)
        except NotFound:
            return None

    async def condition(self, kind: NodeCondition) -> Condition | None:
        state = await self.state()
        return find(state.status.conditions, kind) if state is not None else None

    async def until_condition(self, kind: NodeCondition, reason: str) -> None:
        """Wait for a condition with this reason."""

        async def holds() -> bool:
            held = await self.condition(kind)
            return held is not None and held.reason == reason

        await until_async(holds, saying=f"{kind}: {reason} on {self.name}")

    async def until_events(self, *reasons: str) -> list[Event]:
        """Wait until there is an Event with each of these reasons about the node or one of its cards."""
        found: list[Event] = []

        async def all_found() -> bool:
            events = await self.client.list(Event, Selection("default"))
            found[:] = [event for event in events if event.regarding and event.regarding.name.startswith(self.name)]
            return {event.reason for event in found} >= set(reasons)

        await until_async(all_found, saying=f"Events {reasons} about {self.name}")
        return found

    async def counted_by_nfd(self, namespace: str, count: int) -> None:
        """The worker of Node Feature Discovery counts so many cards, among other devices."""
        card = {"attributes": {"vendor": "10de", "device": "2335", "class": "0302"}}
        other = {"attributes": {"vendor": "8086", "device": "1533", "class": "0200"}}
        body = {
            "metadata": {"labels": {NODE_LABEL: self.name}},
            "spec": {"features": {"instances": {"pci.device": {"elements": [other, *[card] * count]}}}},
        }
        await self.client.apply(NodeFeature, self.name, body, manager=AGENT, namespace=namespace)

    def writes(self, proxy: FaultProxy) -> list[Request]:
        """What was written about this machine, Events left out."""
        return [request for request in proxy.writes if self.name in request.path and "/events" not in request.path]


@asynccontextmanager
async def controllers(
    proxy: FaultProxy,
    settings: inventory.Settings = DEFAULTS,
    bootstrap_settings: bootstrap.Settings = BOOTSTRAP_DEFAULTS,
    *,
    beside: Callable[[Runtime], None] = lambda _runtime: None,
    orderly: bool = True,
) -> AsyncIterator[Runtime]:
    """Run inventory and bootstrap, and what `beside` adds. Without `orderly` they end as in a crash, in the middle of
    whatever they do."""
    runtime = Runtime("test-inventory", config=proxy.config, elect=False, status_port=None)
    inventory.build(runtime, settings)
    bootstrap.build(runtime, bootstrap_settings)
    beside(runtime)
    task = asyncio.create_task(runtime.run())
    try:
        await until(lambda: reconciles(runtime)() > 0 or task.done())
        yield runtime
    finally:
        if orderly:
            runtime.stop()
        else:
            task.cancel()
        await asyncio.wait((task,))


def reconciles(runtime: Runtime, controller: str = "inventory") -> Callable[[], float]:
    """How many reconciles of a controller have ended."""

    def count() -> float:
        samples = (sample for metric in runtime.metrics.registry.collect() for sample in metric.samples)
        return sum(
            sample.value
            for sample in samples
            if sample.name == "kube_reconciles_total" and sample.labels.get("controller") == controller
        )

    return count
