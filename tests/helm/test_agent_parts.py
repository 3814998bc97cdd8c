"""The agent with parts of it switched off, started as the chart starts it: what others do, it does not do as well."""

import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from gpu_control_plane.agent.fleet.machines import node_manifest
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUNodeState
from gpu_control_plane.api.gpunodestate import Monitoring, MonitoringSource, StepResult
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.api.nodefeature import NodeFeature, feature_name, read_facts
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.kube.conditions import condition
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.times import utc_now
from helm.chart import NAMESPACE, Helm, command_of
from helm.installed import Installed, Program
from helm.operands import switched_on
from integration.agent.kubelet_and_books import kubelet_and_books
from waiting import until_async

NODE: Final = "node-with-parts"
MORE_CHECKS: Final = {"bootstrap": {"validator": {"enableNvidiaFSValidation": True, "enableGDRCopyValidation": True}}}


@pytest.fixture
async def client(api_server: Installed) -> AsyncIterator[Client]:
    async with Client(load_config(api_server.cluster.kubeconfig)) as client:
        await install(client)
        await client.create(NodeView, node_manifest(NODE, new_machine("H200-141", 2)))
        await client.create(GPUNodeState, {"metadata": {"name": NODE}})
        # What inventory says of a node.
        complete = condition((), NodeCondition.INVENTORY_COMPLETE, True, Reason.READY, "", now=utc_now())
        status = {"status": {"conditions": [msgspec.to_builtins(complete)]}}
        await client.patch(GPUNodeState, NODE, status, subresource="status")
        yield client


async def test_what_another_program_does_is_left_to_it(
    api_server: Installed, helm: Helm, client: Client, tmp_path: Path
) -> None:
    async def checks() -> dict[str, StepResult]:
        validation = (await client.get(GPUNodeState, NODE)).status.validation
        return {step.name: step.result for step in validation.steps} if validation else {}

    async def monitoring() -> Monitoring | None:
        try:
            return read_facts(await client.get(NodeFeature, feature_name(NODE), NAMESPACE)).monitoring
        except NotFound:
            return None

    async with _agent(api_server, helm, tmp_path / "alone", MORE_CHECKS) as metrics:
        await until_async(checks, saying="the agent checks the node")
        assert await monitoring() == Monitoring(source=MonitoringSource.AGENT)
        assert "DCGM_FI_DEV_GPU_TEMP{" in await metrics()
        # The machine has no such modules: a check that failed is one that was made.
        assert (await checks())["nvidia-fs"] is StepResult.FAILED

    async with _agent(api_server, helm, tmp_path / "beside", switched_on("dcgmExporter", "validator")) as metrics:

        async def silent() -> bool:
            return not await checks() and await monitoring() is None

        await until_async(silent, saying="the agent takes back what it said")
        text = await metrics()
        assert "gpu_agent_publications_total" in text
        assert "DCGM_" not in text


@asynccontextmanager
async def _agent(cluster: Installed, helm: Helm, folder: Path, values: dict[str, Any]) -> AsyncIterator[Any]:
    """Runs inside, on a node of its own; what is yielded asks it for its metrics."""
    elsewhere = ("--hardware", "--status-port", "--host-root", "--driver-root")
    command = [each for each in command_of(helm.objects(values).pod("agent"))[1:] if not each.startswith(elsewhere)]
    places = [f"--{name}={folder / name}" for name in ("cdi-folder", "validations", "device-folder")]
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        port = any_port.getsockname()[1]

    async def metrics() -> str:
        return await asyncio.to_thread(_read, f"http://127.0.0.1:{port}/metrics")

    async def answers() -> bool:
        try:
            return bool(await metrics())
        except OSError:
            return False

    async with kubelet_and_books() as kubelet:
        options = ["--hardware=simulated", f"--kubelet-folder={kubelet.folder}", f"--status-port={port}", *places]
        kubeconfig = cluster.cluster.kubeconfig
        with Program([*command, *options], kubeconfig, folder.with_suffix(".log"), NODE_NAME=NODE):
            await until_async(answers, saying="the agent serves metrics")
            yield metrics


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - our own program
        return str(answer.read().decode())
