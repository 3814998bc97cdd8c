"""`make demo`: the main job on a real control plane with simulated GPU nodes. Safe to run again."""

import asyncio
import contextlib
import os
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from examples.workloads import Deployment, Namespace, Pod, bare_pod, deployment
from gpu_control_plane.agent.fleet.machines import add_nodes, edit_card
from gpu_control_plane.agent.simulated.machine import heal, new_machine, report_xid
from gpu_control_plane.agent.simulated.models import pci_address
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool, PoolPhase, inventory_id
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.names import GROUP, Annotation, Label
from gpu_control_plane.cli.screen import ATTENTION, OK, Screen
from gpu_control_plane.cli.sidecars import console_address, install_local_webhooks, sidecars
from gpu_control_plane.cli.summary import show_summary
from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.kube import Client, FieldManager, Selection, load_config
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import Forbidden, KubeError, NotFound
from gpu_control_plane.kube.events import Event
from gpu_control_plane.local import LocalError
from gpu_control_plane.local.folders import cluster_folder
from gpu_control_plane.local.lifecycle import UpOptions, bring_up, start_sidecar
from gpu_control_plane.local.status import cluster_status

_NAME = "gpu"
_US = FieldManager("demo")
_GUESTS = "guests"
_DENIED = "denied request: "
_WIDTH = 100
_NODES = {"h200-1": ("H200-141", 4), "h200-2": ("H200-141", 4), "l40s-1": ("L40S", 4)}
_APPS = {"chat": "default", "train": "default", "notebooks": "default", "batch": "default", "trial": _GUESTS}
_LAB, _LAB_CARDS = "h100-lab", 2
_POOLS: dict[str, dict[str, object]] = {
    "training": {"deviceSelector": {"include": {"products": ["*H200*"]}}, "access": {"namespaces": ["default"]}},
    "inference": {
        "access": {"namespaceSelector": {}},
        "deviceSelector": {"include": {"products": ["*L40S*", "*H200*"]}},
        "assignment": {"autoApproveSelector": {"matchLabels": {Label.PRODUCT.value: "NVIDIA-L40S"}}},
        "quotas": [{"namespace": _GUESTS, "units": 1}],
    },
}
_NOTEBOOKS, _BATCH = (inventory_id(_LAB, pci_address(index)) for index in range(_LAB_CARDS))
_WHOLE: dict[str, object] = {"mode": "Exclusive"}
_INSTANCES: dict[str, object] = {"mode": "MIG", "mig": {"profile": "1g.10gb"}}
_TURNS: dict[str, object] = {"mode": "TimeSlice", "timeSlice": {"replicas": 4}}

_TO_TRY = (
    "kubectl get gpudevices -o wide",
    "kubectl get pods -o wide",
    "kubectl describe gpupool training",
    "kubectl gpu simulate list",
)


class DemoFailed(Exception):
    """A stage did not get where it should; the sentence says which one and where to look."""


class Demo:
    """The stages, in order. What an earlier run left behind is put back to the beginning first."""

    def __init__(self, client: Client, screen: Screen) -> None:
        self._client = client
        self._screen = screen

    async def run(self) -> None:
        if await self._devices():
            await self._start_over()
        self._title("2. Machines with GPUs join; their cards are found")
        await self._cards_are_found()
        self._title("3. Two pools: one approves cards by itself, the other asks a person")
        await self._pools_take_cards()
        self._title("4. Pods ask for cards through resources.limits")
        await self._pods_run()
        self._title("5. A namespace has a limit")
        await self._a_limit_holds()
        self._title("6. A card moves to the other pool; its pod is not touched")
        await self._a_card_moves()
        self._title("7. A card breaks, and is mended")
        await self._a_card_breaks()
        self._title("8. Cards are shared: by turns, and by MIG instances once their pod has ended")
        await self._cards_take_turns()
        await self._whole_cards_become_instances()
        self._title("9. What is there now")
        await self._show()

    async def _start_over(self) -> None:
        with self._screen.step("An earlier demo was here: its pods end, its cards are released"):
            for name, namespace in _APPS.items():
                with contextlib.suppress(NotFound):
                    await self._client.delete(Deployment, name, namespace, propagation="Foreground")
            await _until(self._apps_are_gone, "the pods did not end")
            for device in filter(_faulted, await self._devices()):
                await self._repair(device.name)
            ours = [device for device in await self._devices() if _selected_by_training(device)]
            for device in ours:
                await self._approve(device.name, None)
            await _until(lambda: self._count(_free_h200, len(ours)), "the cards were not released")

    async def _cards_are_found(self) -> None:
        for name, (profile, cards) in _NODES.items():
            await add_nodes(self._client, [name], new_machine(profile, cards))
        await add_nodes(self._client, [_LAB], new_machine("H100-80", _LAB_CARDS))
        wanted = sum(cards for _, cards in _NODES.values()) + _LAB_CARDS
        with self._screen.step(f"{wanted} cards on {len(_NODES) + 1} machines"):
            await _until(
                lambda: self._count(lambda device: device.status.state is not None, wanted), "not all cards were found"
            )

    async def _pools_take_cards(self) -> None:
        for name, spec in _POOLS.items():
            await self._client.apply(GPUPool, name, {"spec": spec}, manager=_US)
        with self._screen.step("inference: its L40S cards are approved by a selector"):
            await _until(lambda: self._count(_in("inference"), 4), "the L40S cards did not join inference")
        free = [device for device in await self._devices() if _free_h200(device)]
        with self._screen.step(f"training: a person approves {max(len(free) - 1, 0)} of {len(free)} cards"):
            for device in free[:-1]:
                await self._approve(device.name, "training")
            await _until(
                lambda: self._count(_in("training"), len(free) - 1, at_least=True), "the cards did not join training"
            )

    async def _pods_run(self) -> None:
        with self._screen.step(f"A pod in the namespace {_GUESTS}, which training does not admit, is refused"):
            refusal = await self._refusal()
        self._tell(refusal)
        await self._deploy("chat", "inference", 3)
        await self._deploy("train", "training", 8)
        with self._screen.step("3 pods of chat run"):
            await _until(lambda: self._available("chat", 3), "chat does not run")
        last = next((device for device in await self._devices() if _waits(device)), None)
        if last is not None:
            with self._screen.step("7 pods of train run; the eighth waits, and an Event says why"):
                await _until(lambda: self._available("train", 7), "train does not run")
                await _until(self._explanation, "no Event says why the pod waits")
            self._tell(await self._explanation() or "")
            await self._approve(last.name, "training")
        with self._screen.step("The last card is approved: 8 pods of train run"):
            await _until(lambda: self._available("train", 8), "the eighth pod does not run")

    async def _a_limit_holds(self) -> None:
        await _until(lambda: self._says("inference", "QuotasHold", "QuotasHold"), "the limit was not written")
        await self._deploy("trial", "inference", 2)
        with self._screen.step(f"Of 2 pods of trial in {_GUESTS}, one runs and one is refused"):
            await _until(lambda: self._available("trial", 1), "trial does not run")
            await _until(lambda: self._failure("trial", "forbidden: "), "the second pod was not refused")
        self._tell(await self._failure("trial", "forbidden: "))

    async def _a_card_moves(self) -> None:
        card = (await self._used_by("train"))[0]
        await self._approve(card, "inference")
        with self._screen.step(f"{card} drains: no new pod, the old one goes on"):
            await _until(lambda: self._offered(card, expected=False), "the card was not withdrawn")
        if not await self._available("train", 8):
            raise DemoFailed("A running pod was disturbed.")
        await self._deploy("train", "training", 7)
        if card not in await self._used_by("train"):
            self._screen.mark(OK, "its pod has ended")
        else:
            await self._end_pod_on(card)
        with self._screen.step(f"{card} joins inference"):
            await _until(lambda: self._device_is(card, _in("inference")), "the card did not move")

    async def _a_card_breaks(self) -> None:
        card = (await self._used_by("train"))[0]
        await edit_card(self._client, card, lambda machine, address: report_xid(machine, address, 79))
        with self._screen.step(f"XID 79 on {card}: out of service, its pod is left alone"):
            await _until(lambda: self._device_is(card, _faulted), "the fault was not noticed")
        with self._screen.step("Repaired, and a person says so: the pool has its card back"):
            await self._repair(card)
            await _until(lambda: self._device_is(card, lambda device: not _faulted(device)), "the card did not recover")

    async def _cards_take_turns(self) -> None:
        await self._make_lab_pool("batch", _BATCH, _TURNS)
        await self._deploy("batch", "batch", 4)
        with self._screen.step("batch, 4 time slices a card: 4 pods take turns on one H100"):
            await _until(lambda: self._available("batch", 4), "batch does not run")

    async def _whole_cards_become_instances(self) -> None:
        await self._make_lab_pool("notebooks", _NOTEBOOKS, _WHOLE)
        await self._deploy("notebooks", "notebooks", 1)
        with self._screen.step("notebooks, whole cards: a pod has an H100 for itself"):
            await _until(lambda: self._available("notebooks", 1), "notebooks does not run")
        await self._make_lab_pool("notebooks", _NOTEBOOKS, _INSTANCES)
        with self._screen.step("From now on in MIG instances: the pool is in Maintenance, a new pod is refused"):
            await _until(self._maintenance_refusal, "a pod was not refused")
        self._tell(await self._maintenance_refusal())
        if not await self._available("notebooks", 1):
            raise DemoFailed("A running pod was disturbed.")
        await self._deploy("notebooks", "notebooks", 0)
        with self._screen.step("The pod has ended: the card is cut into 7 instances"):
            await _until(lambda: self._advertises(_LAB, notebooks=7), "the card was not cut")
            await _until(lambda: self._is_ready("notebooks"), "the pool is not ready again")
        await self._deploy("notebooks", "notebooks", 7)
        with self._screen.step("7 pods have an instance each"):
            await _until(lambda: self._available("notebooks", 7), "notebooks does not run")

    async def _show(self) -> None:
        await _until(self._numbers_are_right, "the pools' numbers do not add up")
        rows = []
        for pool in await self._client.list(GPUPool):
            units = pool.status.units
            counts = (units.total, units.used, units.available, units.faulted) if units else ("", "", "", "")
            rows.append((OK, (pool.name, str(pool.status.phase), *map(str, counts), pool.resource_name)))
        self._screen.table(("POOL", "PHASE", "UNITS", "USED", "FREE", "FAULTED", "RESOURCE"), rows)
        self._screen.line()

    # What people do.

    async def _approve(self, device: str, pool: str | None) -> None:
        await self._client.patch(GPUDevice, device, {"metadata": {"annotations": {Annotation.ASSIGNMENT.value: pool}}})

    async def _refusal(self) -> str:
        """What a Deployment says whose pods may not use the pool that they ask for."""
        await self._client.apply(Namespace, _GUESTS, {}, manager=_US)
        await self._client.apply(
            Deployment, "uninvited", deployment("uninvited", "training", 1), manager=_US, namespace=_GUESTS
        )
        await _until(lambda: self._failure("uninvited", _DENIED), "the pod was not refused")
        return await self._failure("uninvited", _DENIED)

    async def _failure(self, name: str, after: str) -> str:
        """Why a guests' Deployment lacks pods, without what comes before the sentence; nothing while not known."""
        asked = await self._client.get(Deployment, name, _GUESTS)
        failure = find(asked.status.conditions, "ReplicaFailure")
        return failure.message.partition(after)[2] if failure else ""

    async def _maintenance_refusal(self) -> str:
        """What a person is told who asks for a card now; nothing if the pod would be admitted."""
        try:
            await self._client.try_create(Pod, bare_pod("eager", "notebooks"), "default")
        except Forbidden as error:
            return error.message.partition("denied the request: ")[2]
        return ""

    async def _deploy(self, name: str, pool: str, replicas: int) -> None:
        body = deployment(name, pool, replicas)
        await self._client.apply(Deployment, name, body, manager=_US, namespace=_APPS[name])

    async def _make_lab_pool(self, name: str, card: str, allocation: dict[str, object]) -> None:
        """A pool of one card of the laboratory's machine."""
        spec = {
            "deviceSelector": {"include": {"inventoryIDs": [card]}},
            "assignment": {"requireAnnotation": False},
            "access": {"namespaces": ["default"]},
            "allocation": allocation,
        }
        await self._client.apply(GPUPool, name, {"spec": spec}, manager=_US)
        await _until(lambda: self._is_carried_out(name), f"the pool {name} does not say that it has seen its spec")

    async def _repair(self, card: str) -> None:
        """The hardware is mended. A card returns by itself once it has looked well for a while, and at once when a
        person says that it is mended."""
        await edit_card(self._client, card, heal)
        body = {"metadata": {"annotations": {Annotation.CLEAR_FAULT.value: "repaired in the demo"}}}
        await self._client.patch(GPUDevice, card, body)

    async def _end_pod_on(self, card: str) -> None:
        device = await self._client.get(GPUDevice, card)
        for user in device.status.used_by:
            await self._client.delete(Pod, user.pod, user.namespace)

    # What can be seen.

    async def _devices(self) -> list[GPUDevice]:
        return await self._client.list(GPUDevice)

    async def _count(self, what: Callable[[GPUDevice], bool], wanted: int, *, at_least: bool = False) -> bool:
        found = sum(what(device) for device in await self._devices())
        return found >= wanted if at_least else found == wanted

    async def _device_is(self, name: str, what: Callable[[GPUDevice], bool]) -> bool:
        return what(await self._client.get(GPUDevice, name))

    async def _offered(self, card: str, *, expected: bool) -> bool:
        device = await self._client.get(GPUDevice, card)
        states = await self._client.list(GPUNodeState, Selection(fields=f"metadata.name={device.spec.node_name}"))
        ordered = any(order.inventory_id == card for state in states for order in state.spec.assignments)
        return ordered is expected

    async def _apps_are_gone(self) -> bool:
        return not any(each.name in _APPS for each in await self._client.list(Deployment))

    async def _says(self, pool: str, condition: str, reason: str) -> bool:
        said = find((await self._client.get(GPUPool, pool)).status.conditions, condition)
        return said is not None and said.reason == reason

    async def _is_ready(self, name: str) -> bool:
        return (await self._client.get(GPUPool, name)).status.phase is PoolPhase.READY

    async def _is_carried_out(self, name: str) -> bool:
        """Whether the pool offers its card, or has begun to change that."""
        pool = await self._client.get(GPUPool, name)
        seen = pool.status.observed_generation == pool.metadata.generation
        return seen and pool.status.phase in {PoolPhase.READY, PoolPhase.MAINTENANCE}

    async def _advertises(self, node: str, **units: int) -> bool:
        plugin = (await self._client.get(GPUNodeState, node)).status.plugin
        healthy = {resource.name: resource.healthy for resource in plugin.resources} if plugin else {}
        return all(healthy.get(f"{GROUP}/{name}") == count for name, count in units.items())

    async def _used_by(self, app: str) -> list[str]:
        devices = await self._devices()
        return sorted(
            device.name for device in devices if any(user.pod.startswith(f"{app}-") for user in device.status.used_by)
        )

    async def _available(self, name: str, replicas: int) -> bool:
        return (await self._client.get(Deployment, name, _APPS[name])).status.available_replicas >= replicas

    async def _numbers_are_right(self) -> bool:
        """Whether every unit of every pool is on offer, in use or known to be broken, and every pod is counted."""
        units = [pool.status.units for pool in await self._client.list(GPUPool)]
        running = await self._client.list(Pod, Selection(fields="status.phase=Running"))
        return all(
            each and each.used + each.reserved + each.available + each.faulted == each.total for each in units
        ) and sum(each.used for each in units if each) == len(running)

    async def _explanation(self) -> str | None:
        """The Event about the youngest pod of train that waits."""
        events = await self._client.list(Event, Selection("default", fields="reason=WaitingForGPU"))
        waiting = {
            pod.name for pod in await self._client.list(Pod, Selection("default", fields="status.phase=Pending"))
        }
        notes = [event.note for event in events if event.regarding and event.regarding.name in waiting]
        return notes[0] if notes else None

    def _tell(self, sentence: str) -> None:
        """What somebody is told by the cluster."""
        self._screen.mark(ATTENTION, textwrap.fill(sentence, _WIDTH, subsequent_indent="  "))

    def _title(self, text: str) -> None:
        self._screen.line()
        self._screen.line(self._screen.style(text, bold=True))


def _pool(device: GPUDevice) -> str | None:
    return device.status.pool_ref.name if device.status.pool_ref else None


def _in(pool: str) -> Callable[[GPUDevice], bool]:
    return lambda device: _pool(device) == pool


def _faulted(device: GPUDevice) -> bool:
    return device.status.state is DeviceState.FAULTED


def _selected_by_training(device: GPUDevice) -> bool:
    return device.status.hardware is not None and "H200" in device.status.hardware.product


def _free_h200(device: GPUDevice) -> bool:
    return _selected_by_training(device) and _pool(device) is None


def _waits(device: GPUDevice) -> bool:
    return _selected_by_training(device) and Annotation.ASSIGNMENT not in device.metadata.annotations


async def _until(condition: Callable[[], Awaitable[object]], otherwise: str, *, within: float = 40.0) -> None:
    deadline = time.monotonic() + within
    while not await condition():
        if time.monotonic() > deadline:
            logs = cluster_folder(_NAME) / "logs"
            raise DemoFailed(f"After {within:g} s {otherwise}. Look into {logs}/controller.log and agents.log.")
        await asyncio.sleep(0.1)


async def _stages(screen: Screen) -> None:
    async with Client(load_config(cluster_folder(_NAME) / "kubeconfig")) as client:
        await Demo(client, screen).run()


def _install(kubeconfig: Path) -> list[str]:
    return [*install_crds(kubeconfig), *install_policies(kubeconfig)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run the main job on a real control plane with simulated GPU machines. Safe to run again; `make down` removes it.

    Cards are found, pooled and given to pods; one moves to another pool, one breaks, others are shared;
    who may not use a pool, or has reached a limit, is told so.
    """
    sys.exit(run())


def run() -> int:
    screen = Screen(sys.stdout)
    try:
        screen.line(screen.style("1. A real control plane, with our controller and simulated agents", bold=True))
        result = bring_up(UpOptions(name=_NAME, nodes=0), screen, _install)
        programs = sidecars(_NAME, {}, running=result.was_running)
        install_local_webhooks(cluster_folder(_NAME) / "kubeconfig", programs)
        for sidecar in programs:
            start_sidecar(_NAME, sidecar)
            screen.mark(OK, f"Started {sidecar.name}")
        asyncio.run(_stages(screen))
        show_summary(screen, cluster_status(_NAME), _TO_TRY, console=console_address(_NAME))
    except (LocalError, KubeError, DemoFailed) as error:
        Screen(sys.stderr).failure(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has ended, as in `make demo | head`; the cluster stays
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    main()
