"""Programs can do their work with the rights the chart gives them, and not much more."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gpu_control_plane.agent.fleet.machines import edit_card, edit_node
from gpu_control_plane.agent.simulated.machine import HARDWARE, heal, new_machine, pull, write_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUApproval, GPUDevice, GPUNodeState, GPUPool, inventory_id
from gpu_control_plane.api.names import Annotation, DeviceCondition, EventReason, Label
from gpu_control_plane.api.nodefeature import NodeFeature, discovery_name, feature_name
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.kube import Client, FieldManager, Selection, load_config
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.events import Event
from gpu_control_plane.local.ports import free_port
from helm.chart import NAMESPACE, Helm, command_of
from helm.installed import Installed, Program
from integration.agent.kubelet_and_books import kubelet_and_books
from integration.console.env import PersonWithToken, person
from integration.flow.env import flow_env, pool_of
from integration.flow.test_actions import gpu
from integration.rbac import ClusterRoleBinding
from unit.agent.backends.fake_machine import FakeMachine
from waiting import until_async

pytestmark = pytest.mark.timeout(600)

INSTALLED = {"agent": {"labels": True}, "discovery": {"enabled": True}, "console": {"enabled": True}}
WEBHOOK = "gpu-control-plane-webhook"
INDEX = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-pool-access"
FIRST, SECOND = (f"node-a-0000-{bus}-00-0" for bus in ("18", "2a"))


@pytest.fixture
async def client(installed: Installed) -> AsyncIterator[Client]:
    async with Client(load_config(installed.cluster.kubeconfig)) as client:
        yield client


def arguments(helm: Helm, component: str) -> list[str]:
    """As the installed chart starts the program, without the interpreter."""
    return command_of(helm.objects(INSTALLED).pod(component))[1:]


async def test_the_controller_needs_no_more_rights(
    installed: Installed, helm: Helm, client: Client, tmp_path: Path
) -> None:
    """The main job with the controller as the chart lets it be: nothing is forbidden on the way."""
    command = [each.replace("$(POD_NAME)", "test") for each in arguments(helm, "controller")]
    ports = ["--status-port=0", "--webhook-port=0"]
    kubeconfig = installed.account("gpu-control-plane-controller")
    async with flow_env(installed.cluster, tmp_path / "flow") as scene:
        with Program([*command, *ports], kubeconfig, tmp_path / "controller.log"):
            await scene.device_is(FIRST, lambda device: device.status.state)
            await scene.add_pool("training")
            await scene.start_pod("eager", "training")

            async def explained() -> bool:
                events = await client.list(Event, Selection("default", fields="regarding.name=eager"))
                return any(event.reason == "WaitingForGPU" for event in events)

            await until_async(explained, saying="an Event about the waiting pod")
            installed.request("DELETE", INDEX)
            await until_async(lambda: asyncio.to_thread(installed.exists, INDEX), saying="the index is made anew")
            assert installed.request("GET", INDEX)["data"] == {
                "gpu.deckhouse.io_training": "pool training\nselector Every\n\n"
            }
            await scene.approve(FIRST, "training")
            await scene.pod_is("eager", "Running")
            await scene.end_pod("eager")

            await scene.approve(SECOND, "training")
            keeper = await administrator(client)
            file = str(tmp_path / "gpus.yaml")
            # Cards that other tests have left here may have told no UUID; a backup names them.
            assert (await gpu(scene, "backup", "-o", file, *keeper)).code in {0, ExitCode.PARTIAL}

            for card in (FIRST, SECOND):
                await scene.approve(card, None)
                await scene.device_is(card, lambda device: pool_of(device) is None)
            await client.delete(GPUPool, "training")
            await until_async(lambda: _gone(client, GPUPool, "training"), saying="the pool is gone")

            await edit_card(client, SECOND, pull)
            await until_async(lambda: _gone(client, GPUDevice, SECOND), saying="the pulled card is forgotten")

            restored = await gpu(scene, "restore", file, *keeper)
            assert restored.code == 0, restored
            await scene.device_is(FIRST, lambda device: pool_of(device) == "training")

            async def told() -> bool:
                return bool((await client.get(GPUApproval, SECOND)).status.message)

            await until_async(told, saying="the approval says that its card is away")
            await edit_node(client, "node-a", lambda machine: heal(machine, "0000:2a:00.0"))
            await scene.device_is(SECOND, lambda device: pool_of(device) == "training")
            await until_async(lambda: _gone(client, GPUApproval, SECOND), saying="the approval has been followed")

            about = {"metadata": {"name": discovery_name("node-b"), "labels": {}}, "spec": _bus()}
            await client.create(NodeFeature, about, NAMESPACE)

            async def labelled() -> bool:
                return (await client.get(NodeView, "node-b")).metadata.labels.get(Label.GPU_PRESENT) == "true"

            await until_async(labelled, saying="the gate has labelled node-b")

            async def trusted() -> bool:
                paths = (
                    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{WEBHOOK}"
                    for kind in ("validating", "mutating")
                )
                webhooks = [webhook for path in paths for webhook in installed.request("GET", path)["webhooks"]]
                return all(webhook["clientConfig"].get("caBundle") for webhook in webhooks)

            await until_async(trusted, saying="the API server is told whom to trust")
            secret = installed.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{WEBHOOK}")
            assert set(secret["data"]) >= {"ca.crt", "tls.crt", "tls.key"}


async def test_the_agent_needs_no_more_rights(installed: Installed, helm: Helm, client: Client, tmp_path: Path) -> None:
    """With the token of its own pod and under the policies: it finds cards, offers them, answers and reports."""
    node, addresses = "node-e", ("0000:18:00.0", "0000:2a:00.0")
    devices = [inventory_id(node, address) for address in addresses]
    hardware = {HARDWARE: write_machine(new_machine("H200-141", 2))}
    await client.patch(NodeView, node, {"metadata": {"annotations": hardware}})
    orders = _orders([*devices, "node-e-no-such-card"])
    # There may be one by now: a controller that has waited for a report makes it.
    await client.apply(GPUNodeState, node, {"spec": {"assignments": orders}}, manager=FieldManager("pools"))
    for device, address in zip(devices, addresses, strict=True):
        spec = {"nodeName": node, "pciAddress": address}
        mark = {str(Annotation.CLEAR_FAULT): "mended"}
        await client.create(GPUDevice, {"metadata": {"name": device, "annotations": mark}, "spec": spec})
    elsewhere = ("--hardware", "--status-port", "--host-root", "--driver-root")
    command = [each for each in arguments(helm, "agent") if not each.startswith(elsewhere)]
    places = [f"--{name}={tmp_path / name}" for name in ("cdi-folder", "validations", "device-folder")]
    kubeconfig = installed.account("gpu-control-plane-agent", node)
    async with kubelet_and_books() as kubelet:
        options = ["--hardware=simulated", f"--kubelet-folder={kubelet.folder}", *places]
        with Program([*command, *options], kubeconfig, tmp_path / "agent.log", NODE_NAME=node):

            async def reported() -> bool:
                cards = [await client.get(GPUDevice, device) for device in devices]
                return all(
                    find(card.status.conditions, DeviceCondition.HEALTHY)
                    and Annotation.CLEAR_FAULT not in card.metadata.annotations
                    for card in cards
                )

            async def answered() -> bool:
                plugin = (await client.get(GPUNodeState, node)).status.plugin
                return plugin is not None and [each.units for each in plugin.resources] == [2]

            async def recorded() -> bool:
                events = await client.list(Event, Selection("default", fields=f"regarding.name={node}"))
                return any(event.reason == EventReason.ORDER_NOT_CARRIED_OUT for event in events)

            async def described() -> bool:
                labels = (await client.get(NodeView, node)).metadata.labels
                features = Selection(NAMESPACE, fields=f"metadata.name={feature_name(node)}")
                published = [each.spec.features.instances for each in await client.list(NodeFeature, features)]
                return any(published) and labels.get("nvidia.com/gpu.count") == "2"

            await until_async(reported, saying="cards are looked at anew and reported")
            await until_async(answered, saying="the orders are answered")
            await until_async(recorded, saying="an Event about the order that cannot be carried out")
            await until_async(described, saying="the cards are published, and labels on the node")


async def test_discovery_needs_no_more_rights(installed: Installed, helm: Helm, client: Client, tmp_path: Path) -> None:
    node = "node-d"
    room = FakeMachine(tmp_path / "machine")
    room.plug("0000:18:00.0")
    command = [each for each in arguments(helm, "discovery") if not each.startswith("--status-port")]
    kubeconfig = installed.account("gpu-control-plane-discovery", node)
    with Program([*command, f"--sysfs={room.sys}"], kubeconfig, tmp_path / "discovery.log", NODE_NAME=node):

        async def published() -> bool:
            found = await client.list(NodeFeature, Selection(NAMESPACE, fields=f"metadata.name={discovery_name(node)}"))
            return bool(found)

        await until_async(published)


async def test_the_console_needs_no_more_rights(
    installed: Installed, helm: Helm, client: Client, tmp_path: Path
) -> None:
    """It reads, and knows an administrator by her token; somebody without rights is shown nothing."""
    admin = await person(client, [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
    nobody = await person(client)
    port = free_port()
    command = [each for each in arguments(helm, "console") if not each.startswith("--port")]
    kubeconfig = installed.account("gpu-control-plane-console")
    options = [f"--port={port}", "--status-port=0"]
    with Program([*command, *options], kubeconfig, tmp_path / "console.log"):

        async def answer(who: PersonWithToken, path: str) -> tuple[int, Any]:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=who.header) as session:
                try:
                    async with session.get(path) as got:
                        return got.status, await got.json()
                except aiohttp.ClientError:
                    return 0, None

        async def answers() -> bool:
            return (await answer(admin, "/api/v1/nodes"))[0] == HTTPStatus.OK

        await until_async(answers, saying="the console answers")
        status, shown = await answer(admin, "/api/v1/overview")
        assert (status, shown["missing"]) == (HTTPStatus.OK, [])
        assert (await answer(nobody, "/api/v1/nodes"))[0] == HTTPStatus.FORBIDDEN
        status, shown = await answer(nobody, "/api/v1/overview")
        assert (status, shown["cards"], len(shown["missing"])) == (HTTPStatus.OK, 0, 4)


@pytest.mark.parametrize(
    ("account", "question"),
    [
        ("console", "patch gpudevices.gpu.deckhouse.io"),
        ("console", "patch gpupools.gpu.deckhouse.io"),
        ("console", "create pods -n default"),
        ("console", "get secrets -n d8-gpu-operator"),
        ("console", "list configmaps -n d8-gpu-operator"),
        ("console", "impersonate users"),
        ("console", "impersonate:user-info users.authentication.k8s.io"),
        ("controller", "get secrets -n kube-system"),
        ("controller", "list secrets -n d8-gpu-operator"),
        ("controller", "get secrets/other -n d8-gpu-operator"),
        ("controller", "create pods -n default"),
        ("controller", "create daemonsets.apps -n kube-system"),
        ("controller", "delete nodes"),
        ("controller", "create gpupools.gpu.deckhouse.io"),
        ("controller", "patch validatingwebhookconfigurations/other"),
        ("controller", "patch mutatingwebhookconfigurations/other"),
        ("agent", "get secrets -n d8-gpu-operator"),
        ("agent", "create pods -n d8-gpu-operator"),
        ("agent", "get pods -n d8-gpu-operator"),
        ("agent", "list pods"),
        ("agent", "watch pods"),
        ("agent", "get nodes --subresource=proxy"),
        ("agent", "get nodes --subresource=pods"),
        ("agent", "patch nodes --subresource=status"),
        ("agent", "create gpudevices.gpu.deckhouse.io"),
        ("agent", "delete gpudevices.gpu.deckhouse.io"),
        ("agent", "patch gpunodestates.gpu.deckhouse.io"),
        ("agent", "list gpupools.gpu.deckhouse.io"),
        ("agent", "delete nodefeatures.nfd.k8s-sigs.io -n d8-gpu-operator"),
        ("agent", "create nodefeatures.nfd.k8s-sigs.io -n default"),
        ("discovery", "patch nodes"),
        ("discovery", "list pods"),
        ("discovery", "list gpudevices.gpu.deckhouse.io"),
    ],
    ids=lambda each: each,
)
def test_what_is_not_needed_is_not_granted(installed: Installed, account: str, question: str) -> None:
    who = f"system:serviceaccount:{NAMESPACE}:gpu-control-plane-{account}"
    command = ["--kubeconfig", str(installed.cluster.kubeconfig), "auth", "can-i", *question.split(), f"--as={who}"]
    done = subprocess.run([installed.program, *command], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "no", done.stdout + done.stderr


async def administrator(client: Client) -> tuple[str, ...]:
    """Somebody with the roles that the chart brings for administrators, as options of a command."""
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "keeper"}
    for role in ("gpu-viewer", "gpu-admin"):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        body = {"metadata": {"name": f"keeper-{role}"}, "roleRef": reference, "subjects": [user]}
        await client.create(ClusterRoleBinding, body)
    return "--as", "keeper"


async def _gone(client: Client, kind: type[GPUPool | GPUDevice | GPUApproval], name: str) -> bool:
    try:
        await client.get(kind, name)
    except NotFound:
        return True
    return False


def _bus() -> dict[str, object]:
    card = {"vendor": "10de", "device": "2335", "class": "0302", "address": "0000:18:00.0"}
    return {"features": {"instances": {"gpu.bus": {"elements": [{"attributes": card}]}}}}


def _orders(devices: Sequence[str]) -> list[dict[str, object]]:
    resources = [{"name": "gpu.deckhouse.io/any", "units": 1}]
    order = {"pool": "any", "resources": resources, "allocation": {"mode": "Exclusive"}}
    return [{"inventoryID": device, **order} for device in devices]
