"""The whole product on one machine: a real control plane, the controller and the simulated fleet as processes.

The controller talks to the API server through a proxy that counts its writes and can kill it at any of them.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from fault_proxy import FaultProxy, Request, plain_kubeconfig
from gpu_control_plane.agent.fleet.machines import add_nodes
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.gpupool import Units
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.installation.webhooks import install as install_webhooks
from gpu_control_plane.kube import Client, Selection, load_config
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.local import Cluster
from gpu_control_plane.local.ports import LOOPBACK, free_port
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS
from integration.kinds import Pod
from integration.rbac import ServiceAccount
from waiting import until_async

_CONTROLLER = ("-m", "gpu_control_plane.controller", "--identity", "test", "--status-host", "127.0.0.1")
_FLEET = ("-m", "gpu_control_plane.agent", "--simulated", "--timing", "health.recoveryPeriod=0s")


def webhook_options(port: int) -> tuple[str, ...]:
    """Of a controller that serves the webhooks on this port."""
    return ("--webhooks", WEBHOOKS, "--webhook-host", LOOPBACK, "--webhook-port", str(port))


class FlowEnv:
    """A cluster with our CRDs, the simulated fleet, and a controller that a test may kill."""

    def __init__(self, cluster: Cluster, client: Client, proxy: FaultProxy, folder: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.proxy = proxy
        self._folder = folder
        self._controller: asyncio.subprocess.Process | None = None
        self._fleet: asyncio.subprocess.Process | None = None
        self._through_proxy = folder / "controller.kubeconfig"
        folder.mkdir(exist_ok=True)
        self._through_proxy.write_bytes(plain_kubeconfig(proxy.config.server))

    async def start_controller(self, *arguments: str) -> None:
        command = (*_CONTROLLER, "--status-port", "0", *arguments)
        self._controller = await self._start("controller", self._through_proxy, *command)

    async def start_replica(self, name: str, *arguments: str) -> asyncio.subprocess.Process:
        """Another controller, which leads when the first one dies. The test ends it."""
        command = ("-m", "gpu_control_plane.controller", "--identity", name, "--status-host", LOOPBACK)
        return await self._start(name, self.cluster.kubeconfig, *command, "--status-port", "0", *arguments)

    async def start_controller_with_webhooks(self) -> None:
        """Returns when the API server has been told how to reach them."""
        port = free_port()
        await self.start_controller(*webhook_options(port))
        await install_webhooks(self.client, f"https://{LOOPBACK}:{port}")
        await self.webhooks_trusted()

    async def webhooks_trusted(self) -> None:
        async def trusted() -> bool:
            held = await self.client.get(MutatingWebhookConfiguration, WEBHOOKS)
            return not held.trusts(b"")

        await until_async(trusted, within=90, saying="the API server trusts the webhooks")

    async def start_fleet(self) -> None:
        self._fleet = await self._start("fleet", self.cluster.kubeconfig, *_FLEET)

    async def stop_fleet(self) -> None:
        """From now on no agent answers, and a test may answer in its place."""
        if self._fleet is not None and self._fleet.returncode is None:
            self._fleet.kill()
            await self._fleet.wait()

    async def _start(self, name: str, kubeconfig: Path, *arguments: str) -> asyncio.subprocess.Process:
        with (self._folder / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stdout=log,
                stderr=log,
            )

    def kill_controller(self) -> None:
        if self._controller is not None and self._controller.returncode is None:
            self._controller.send_signal(signal.SIGKILL)

    async def controller_ended(self) -> None:
        if self._controller is not None:
            await self._controller.wait()

    # What people do.

    async def add_nodes(self, *names: str, profile: str = "H200-141", cards: int = 2) -> None:
        await add_nodes(self.client, names, new_machine(profile, cards))

    async def add_pool(self, name: str, **spec: object) -> None:
        """Every pod may use it, unless `spec` says something else."""
        everybody: dict[str, object] = {"access": {"namespaceSelector": {}}}
        await self.client.create(GPUPool, {"metadata": {"name": name}, "spec": {**everybody, **spec}})

    async def approve(self, device: str, pool: str | None) -> None:
        body = {"metadata": {"annotations": {Annotation.ASSIGNMENT: pool}}}
        await self.client.patch(GPUDevice, device, body)

    async def start_pod(self, name: str, pool: str, cards: int = 1) -> None:
        limits = {f"gpu.deckhouse.io/{pool}": str(cards)}
        container = {"name": "main", "image": "any", "resources": {"limits": limits}}
        body = {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}

        async def admitted() -> bool:
            try:
                await self.client.create(Pod, body, "default")
            except Forbidden as error:
                if "which no GPU pool offers" in error.message:
                    return False  # the pool was made just now
                raise
            return True

        await until_async(admitted, saying=f"{name} is admitted")

    async def end_pod(self, name: str) -> None:
        await self.client.delete(Pod, name, "default")

    # What can be seen.

    async def takes_pods(self) -> bool:
        """Pods are refused until the controller-manager has made the service account they run as."""
        return bool(await self.client.list(ServiceAccount, Selection("default", fields="metadata.name=default")))

    async def devices(self) -> dict[str, GPUDevice]:
        return {device.name: device for device in await self.client.list(GPUDevice)}

    async def states(self) -> dict[str, GPUNodeState]:
        return {state.name: state for state in await self.client.list(GPUNodeState)}

    async def pool(self, name: str) -> GPUPool:
        return await self.client.get(GPUPool, name)

    async def phase(self, pod: str) -> str:
        pods = await self.client.list(Pod, Selection("default", fields=f"metadata.name={pod}"))
        return pods[0].status.phase if pods else ""

    async def devices_known(self, count: int) -> None:
        async def known() -> bool:
            devices = await self.devices()
            return len(devices) == count and all(device.status.state for device in devices.values())

        await until_async(known, within=90, saying=f"{count} devices with a state")

    async def device_is(self, name: str, check: Callable[[GPUDevice], object], *, within: float = 90) -> None:
        async def holds() -> bool:
            device = (await self.devices()).get(name)
            return device is not None and bool(check(device))

        await until_async(holds, within=within, saying=f"the condition on {name}")

    async def pool_is(self, name: str, check: Callable[[GPUPool], object], *, within: float = 90) -> None:
        async def holds() -> bool:
            return bool(check(await self.pool(name)))

        await until_async(holds, within=within, saying=f"the condition on the pool {name}")

    async def pod_is(self, name: str, phase: str, *, within: float = 90) -> None:
        async def holds() -> bool:
            return await self.phase(name) == phase

        await until_async(holds, within=within, saying=f"{name} is {phase}")


@asynccontextmanager
async def flow_env(cluster: Cluster, folder: Path) -> AsyncIterator[FlowEnv]:
    """The environment on a cluster that runs and has our CRDs; the fleet runs, the test starts the controller."""
    async with Client(load_config(cluster.kubeconfig)) as client, FaultProxy.before(client.config) as proxy:
        made = FlowEnv(cluster, client, proxy, folder)
        await until_async(made.takes_pods)
        await made.start_fleet()
        try:
            yield made
        finally:
            made.kill_controller()
            await made.stop_fleet()
            await made.controller_ended()


def is_product_write(request: Request) -> bool:
    """A write of a controller, as opposed to its lease and its Events."""
    return request.is_write and "/leases" not in request.path and "/events" not in request.path


def units_of(pool: GPUPool) -> Units:
    """The pool's units; zeros before they are counted."""
    return pool.status.units or Units(total=0, used=0, reserved=0, available=0, faulted=0)


def pool_of(device: GPUDevice) -> str | None:
    return device.status.pool_ref.name if device.status.pool_ref else None


def end_state(devices: dict[str, GPUDevice], states: dict[str, GPUNodeState]) -> object:
    """The end state without moments and versions, to compare two runs."""
    return msgspec.to_builtins(
        {
            "devices": {
                name: (device.status.state, pool_of(device), [change.what for change in device.status.history])
                for name, device in devices.items()
            },
            "orders": {
                name: [(order.inventory_id, order.pool) for order in state.spec.assignments]
                for name, state in states.items()
            },
        }
    )
