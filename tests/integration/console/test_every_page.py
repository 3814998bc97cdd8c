"""Every page answers over a real cluster: to an administrator, and to somebody who may see nothing."""

from datetime import UTC, datetime
from functools import partial
from typing import Final

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.nvidia import ClusterPolicy
from gpu_control_plane.console.card_history import CardHistory
from gpu_control_plane.console.pages import PAGES
from gpu_control_plane.kube import Client
from gpu_control_plane.local import Cluster
from integration.console.env import ALL, new_namespace, next_message, person, running_console
from integration.console.objects import a_card, a_waiting_pod
from waiting import until

SECTIONS: Final = (
    "daemonsets",
    "dcgm",
    "dcgmExporter",
    "devicePlugin",
    "driver",
    "gfd",
    "nodeStatusExporter",
    "operator",
    "toolkit",
)


async def test_every_page_answers(cluster: Cluster, client: Client) -> None:
    namespace = await new_namespace(client)
    card = await a_card(client, users=((namespace, "train-0"),))
    await a_waiting_pod(client, namespace, "train-1")
    await client.create(GPUNodeState, {"metadata": {"name": card.spec.node_name}, "spec": {}})
    await client.create(GPUPool, {"metadata": {"name": "training"}, "spec": {"access": {"namespaces": [namespace]}}})
    await client.create(ClusterPolicy, {"metadata": {"name": "policy"}, "spec": {name: {} for name in SECTIONS}})
    admin, nobody = await person(client, ALL), await person(client)
    names = {"cards": card.name, "nodes": card.spec.node_name, "pools": "training", "pods": "train-1"}
    async with running_console(cluster.kubeconfig) as console:
        caches = console.caches
        await until(lambda: caches.waiting.get("train-1", namespace) and len(caches.policies) and len(caches.states))
        async with console.browser(admin.token) as browser, console.browser(nobody.token) as stranger:
            for page in PAGES:
                if "GET" not in page.methods:
                    continue
                name = names.get(page.path.split("/")[1], "none")
                path = page.path.format(name=name, namespace=namespace)
                async with browser.get(path) as answer:
                    assert answer.status == 200, (path, await answer.text())
                async with stranger.get(path) as answer:
                    text = await answer.text()
                    assert answer.status in (200, 403, 404), (path, text)
                    assert "train-0" not in text.replace(path, "")
                    assert card.spec.pci_address not in text
                if page.live:
                    async with browser.get("/stream", params={"page": path}) as stream:
                        await next_message(stream.content)


async def test_what_agents_write_of_a_card_is_kept_for_its_plots(cluster: Cluster, client: Client) -> None:
    card = await a_card(client)
    async with running_console(cluster.kubeconfig) as console:
        history: CardHistory = console.console.app.state.card_history

        def shows(busy: int) -> bool:
            readings = history.of(card.name, datetime.now(UTC))
            return bool(readings) and readings[-1].utilisation == busy

        for busy in (97, 12):
            telemetry = {"utilisation": busy, "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
            await client.patch(GPUDevice, card.name, {"status": {"telemetry": telemetry}}, subresource="status")
            await until(partial(shows, busy))
        await client.delete(GPUDevice, card.name)
        await until(lambda: not history.of(card.name, datetime.now(UTC)))
