"""Without NFD: a card on the bus becomes the label that brings the agent to the node, with few requests."""

import asyncio
import os
import secrets
import shutil
import sys
from pathlib import Path

import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane import inventory
from gpu_control_plane.agent.discovery import process as discovery
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import (
    BUS,
    NODE_LABEL,
    NodeFeature,
    discovery_name,
    read_bus,
)
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.local import Cluster
from integration.running import running
from unit.agent.backends.fake_machine import FakeMachine
from waiting import until_async, until_still

CARD = "0000:18:00.0"
OTHER = "0000:2a:00.0"
NFD_LABEL = "feature.node.kubernetes.io/pci-10de.present"
POLL_SECONDS = 0.05
UNPRIVILEGED = (
    ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs") if shutil.which("setpriv") else ()
)


class DiscoveryNode:
    """A Node, and the machine behind it as its own kernel shows it."""

    def __init__(self, client: Client, name: str, room: FakeMachine) -> None:
        self.client = client
        self.name = name
        self.room = room

    async def register(self) -> None:
        await self.client.create(Node, {"metadata": {"name": self.name, "labels": {NFD_LABEL: "true"}}})

    async def labels(self) -> dict[str, str]:
        return (await self.client.get(Node, self.name)).metadata.labels

    async def until_labelled(self, value: str | None) -> None:
        async def labelled() -> bool:
            return (await self.labels()).get(Label.GPU_PRESENT) == value

        await until_async(labelled, saying=f"{Label.GPU_PRESENT}={value} on {self.name}")

    async def feature(self) -> NodeFeature | None:
        try:
            return await self.client.get(NodeFeature, discovery_name(self.name), NAMESPACE)
        except NotFound:
            return None

    async def until_published(self, *addresses: str) -> NodeFeature:
        async def published() -> bool:
            found = await self.feature()
            return found is not None and [card.address for card in read_bus(found)] == list(addresses)

        await until_async(published, saying=f"{addresses} published for {self.name}")
        found = await self.feature()
        assert found is not None
        return found

    def writes(self, proxy: FaultProxy) -> list[Request]:
        return [request for request in proxy.writes if self.name in request.path and "/events" not in request.path]


@pytest.fixture
async def node(client: Client, tmp_path: Path) -> DiscoveryNode:
    await install(client)
    made = DiscoveryNode(client, f"bus-{secrets.token_hex(3)}", FakeMachine(tmp_path / "machine"))
    await made.register()
    return made


def node_label_controller(proxy: FaultProxy) -> Runtime:
    runtime = Runtime("test-node-label", config=proxy.config, elect=False, status_port=None)
    inventory.build(runtime)
    return runtime


def discovery_process(proxy: FaultProxy, node: DiscoveryNode) -> Runtime:
    runtime = Runtime("test-discovery", config=proxy.config, elect=False, status_port=None)
    discovery.build(runtime, node.name, NAMESPACE, node.room.host, interval=POLL_SECONDS)
    return runtime


async def test_the_label_comes_with_the_card_and_goes_with_it(client: Client, node: DiscoveryNode) -> None:
    node.room.plug(CARD)
    node.room.plug("0000:00:02.0", vendor="8086", class_="0300")
    async with (
        FaultProxy.before(client.config) as proxy,
        running(node_label_controller(proxy)),
        running(discovery_process(proxy, node)),
    ):
        await node.until_labelled("true")
        feature = await node.until_published(CARD)
        assert feature.metadata.labels[NODE_LABEL] == node.name
        assert [owner.kind for owner in feature.metadata.owner_references] == ["Node"]
        assert set(feature.spec.features.instances) == {BUS}
        node.room.unplug(CARD)
        await node.until_labelled(None)
        await node.until_published()
        node.room.plug(OTHER)
        await node.until_labelled("true")
    assert (await node.labels())[NFD_LABEL] == "true"


async def test_nothing_is_written_while_nothing_changes(client: Client, node: DiscoveryNode) -> None:
    node.room.plug(CARD)
    async with FaultProxy.before(client.config) as controller_proxy, FaultProxy.before(client.config) as bus:
        async with running(node_label_controller(controller_proxy)), running(discovery_process(bus, node)):
            await node.until_labelled("true")
            await until_still(lambda: len(bus.requests))
            asked = len(bus.requests)
            await asyncio.sleep(20 * POLL_SECONDS)  # the quiet itself: many looks at the same bus
            assert len(bus.requests) == asked, "reading the bus sends no request"
        # Restarted programs find everything as it should be.
        async with running(node_label_controller(controller_proxy)), running(discovery_process(bus, node)):
            await _others_are_labelled(client)
            await until_still(lambda: len(bus.requests))
        writes = node.writes(bus) + node.writes(controller_proxy)
        assert [(write.method, write.path.split("/")[-2]) for write in writes] == [
            ("PATCH", "nodefeatures"),
            ("PATCH", "nodes"),
        ]


async def test_the_label_survives_a_restart_of_the_controller_and_changes_meanwhile_are_noticed(
    client: Client, node: DiscoveryNode
) -> None:
    node.room.plug(CARD)
    node.room.plug(OTHER)
    async with FaultProxy.before(client.config) as proxy, running(discovery_process(proxy, node)):
        async with running(node_label_controller(proxy)):
            await node.until_labelled("true")
        node.room.unplug(CARD)
        await node.until_published(OTHER)
        done = len(node.writes(proxy))
        async with running(node_label_controller(proxy)):
            await _others_are_labelled(client)
        assert len(node.writes(proxy)) == done, "one card of two is still there"
        node.room.unplug(OTHER)
        await node.until_published()
        assert (await node.labels())[Label.GPU_PRESENT] == "true", "no controller runs that could take it off"
        async with running(node_label_controller(proxy)):
            await node.until_labelled(None)


async def test_a_label_that_another_client_changed_is_corrected(client: Client, node: DiscoveryNode) -> None:
    node.room.plug(CARD)
    async with (
        FaultProxy.before(client.config) as proxy,
        running(node_label_controller(proxy)),
        running(discovery_process(proxy, node)),
    ):
        await node.until_labelled("true")
        for value in ("no", None):
            await client.patch(Node, node.name, {"metadata": {"labels": {str(Label.GPU_PRESENT): value}}})
            await node.until_labelled("true")


async def test_a_node_that_registers_anew_owns_its_feature(client: Client, node: DiscoveryNode) -> None:
    node.room.plug(CARD)
    async with (
        FaultProxy.before(client.config) as proxy,
        running(node_label_controller(proxy)),
        running(discovery_process(proxy, node)),
    ):
        await node.until_labelled("true")
        await client.delete(Node, node.name)
        await node.register()
        await node.until_labelled("true")
        uid = (await client.get(Node, node.name)).metadata.uid

        async def owned() -> bool:
            feature = await node.feature()
            return feature is not None and [owner.uid for owner in feature.metadata.owner_references] == [uid]

        await until_async(owned)


async def test_a_node_without_feature_keeps_the_label_a_person_gave_it(client: Client, node: DiscoveryNode) -> None:
    """Also when the feature makes no sense, or is about another node."""
    await client.patch(Node, node.name, {"metadata": {"labels": {str(Label.GPU_PRESENT): "true"}}})
    async with FaultProxy.before(client.config) as proxy, running(node_label_controller(proxy)):
        for subject, feature in ((node.name, "pci.device"), ("another", BUS)):
            body = {
                "metadata": {"name": discovery_name(node.name), "labels": {NODE_LABEL: subject}},
                "spec": {"features": {"instances": {feature: {"elements": []}}}},
            }
            await client.create(NodeFeature, body, namespace=NAMESPACE)
            await _others_are_labelled(client)
            await client.delete(NodeFeature, discovery_name(node.name), NAMESPACE)
        assert node.writes(proxy) == []
    assert (await node.labels())[Label.GPU_PRESENT] == "true"


async def test_the_command_needs_no_privilege_and_ends_on_sigterm(api_server: Cluster, node: DiscoveryNode) -> None:
    node.room.plug(CARD)
    environment = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig), "NODE_NAME": node.name}
    arguments = ("-m", "gpu_control_plane.agent", "--discover", "--sysfs", str(node.room.sys))
    process = await asyncio.create_subprocess_exec(*UNPRIVILEGED, sys.executable, *arguments, env=environment)
    try:
        await node.until_published(CARD)
    finally:
        process.terminate()
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def _others_are_labelled(client: Client) -> None:
    """Return when a node that came later has its label: then everything before it has been worked on."""
    name = f"later-{secrets.token_hex(3)}"
    await client.create(Node, {"metadata": {"name": name}})
    spec = {"features": {"instances": {BUS: {"elements": [_element()]}}}}
    await client.create(NodeFeature, {"metadata": {"name": discovery_name(name)}, "spec": spec}, namespace=NAMESPACE)

    async def labelled() -> bool:
        return Label.GPU_PRESENT in (await client.get(Node, name)).metadata.labels

    await until_async(labelled)


def _element() -> dict[str, dict[str, str]]:
    return {"attributes": {"vendor": "10de", "device": "2335", "class": "0302", "address": CARD}}
