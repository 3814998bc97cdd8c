"""Drivers for several kernels and systems change their form and their hands without a running one being taken away.

The DaemonSet controller and the garbage collector are the real ones: a DaemonSet adopts whatever its selector finds
without an owner, and removes it where it is not meant to be.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, PodLabel
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.kube import Selection, load_config
from gpu_control_plane.operator.stack.live import LiveDaemonSet, LiveServiceAccount
from gpu_control_plane.operator.views import DaemonSet, OperandPod
from integration.stack.operator_env import NAMESPACE, Theatre, gpu_node, merged, spec_of
from integration.stack.scenarios import SIX_EIGHT, SIX_ELEVEN
from unit.api.nvidia.stock import stock_driver, stock_policy
from unit.operator.stack.daemonset_names import DRIVER
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

BUILT, READY_MADE = {"usePrecompiled": False, "version": "595.91.07"}, {"usePrecompiled": True, "version": "595"}
UBUNTU, RHEL = ("ubuntu", "24.04"), ("rhel", "9.4")
FLEET = {
    "kernel-0": (UBUNTU, SIX_EIGHT),
    "kernel-1": (UBUNTU, SIX_ELEVEN),
    "kernel-2": (RHEL, "5.14.0-427.el9"),
    "kernel-3": (UBUNTU, SIX_EIGHT),
    "kernel-4": (UBUNTU, SIX_ELEVEN),
    "kernel-5": (RHEL, "5.14.0-503.el9"),
}
KERNELS = {
    SIX_EIGHT: "ubuntu24.04",
    SIX_ELEVEN: "ubuntu24.04",
    "5.14.0-427.el9": "rhel9.4",
    "5.14.0-503.el9": "rhel9.4",
}
KERNEL_PAUSE = 0.7
"""Seconds from one write of a DaemonSet to the next: time for whoever is there to adopt pods."""


def policy(**driver: Any) -> dict[str, Any]:
    """Nothing but drivers, which nobody upgrades: whatever takes one away is a fault."""
    off = {"enabled": False}
    spec = merged(spec_of(stock_policy()), driver={"upgradePolicy": {"autoUpgrade": False}, **driver})
    others = ("toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager")
    return merged(spec, **dict.fromkeys(others, off))


async def drivers(theatre: Theatre) -> dict[str, OperandPod]:
    """The driver pod that is on each node; those that wait for a place are not on one."""
    selection = Selection(namespace=NAMESPACE, labels=f"{PodLabel.COMPONENT}=nvidia-driver")
    found = [pod for pod in await theatre.client.list(OperandPod, selection) if pod.spec.node_name]
    assert len({pod.spec.node_name for pod in found}) == len(found)
    return {pod.spec.node_name: pod for pod in found}


async def running(theatre: Theatre) -> dict[str, str]:
    """The UID of each node's driver pod that is ready."""
    return {
        node: pod.metadata.uid for node, pod in (await drivers(theatre)).items() if pod.all_ready and not pod.deleting
    }


async def owners(theatre: Theatre) -> dict[str, str]:
    found = await drivers(theatre)
    return {node: pod.controller.name if pod.controller else "" for node, pod in found.items()}


async def suits(theatre: Theatre) -> dict[str, str]:
    """The kind of nodes that the policy's DaemonSet behind each node's driver is for. Which one of them has the plain
    name is decided by the nodes that have their labels first, and that may be others each time."""
    held = {name: item.metadata.labels.get(PodLabel.VARIANT, "") for name, item in (await theatre.daemonsets()).items()}
    return {node: held.get(owner, "") for node, owner in (await owners(theatre)).items()}


async def settled(theatre: Theatre, *names: str) -> None:
    """Wait until these are the policy's driver DaemonSets and Kubernetes has done everything that it wants to do."""

    async def there() -> bool:
        found = {name: item for name, item in (await theatre.daemonsets()).items() if name.startswith("nvidia-")}
        held = {name: item for name, item in found.items() if _of_drivers(item)}
        return set(held) == set(names) and all(map(_looked_at, held.values()))

    await until_async(there, within=60, saying=f"the drivers are not {names}")
    await theatre.at_rest()


def _of_drivers(daemonset: DaemonSet) -> bool:
    return daemonset.spec.template.metadata.labels.get(PodLabel.COMPONENT) == "nvidia-driver"


def _looked_at(daemonset: DaemonSet) -> bool:
    """Whether there is a pod on, or for, each node it is meant for, and none elsewhere."""
    status = daemonset.status
    return (
        not daemonset.deleting
        and status.observed_generation == daemonset.metadata.generation
        and status.desired_number_scheduled > 0
        and not status.number_misscheduled
    )


def ready_made(kernel: str) -> str:
    return f"{DRIVER}-{kernel}-{KERNELS[kernel]}"


async def playing(theatre: Theatre, **driver: Any) -> dict[str, str]:
    """A fleet with drivers at work; the UIDs of their pods."""
    nodes = [gpu_node(name, system=system, kernel=kernel) for name, (system, kernel) in FLEET.items()]
    await theatre.nodes(*nodes)
    await theatre.policy(policy(**driver))
    await theatre.state("ready")
    found = await running(theatre)
    assert found.keys() == FLEET.keys()
    return found


async def handed_over(theatre: Theatre, form: Mapping[str, Any]) -> None:
    """Leave drivers to an NVIDIADriver, and wait until the policy's are nobody's."""
    await ask_nvidiadriver(theatre, form)
    await become_nobodys(theatre)


async def ask_nvidiadriver(theatre: Theatre, form: Mapping[str, Any]) -> None:
    manifest = stock_driver()
    manifest["spec"] |= {**form, "upgradePolicy": {"autoUpgrade": False}, "priorityClassName": ""}
    await theatre.client.create(StoredNVIDIADriver, manifest)
    await theatre.patch_policy({"driver": {"useNvidiaDriverCRD": True}})


async def become_nobodys(theatre: Theatre) -> None:
    async def so() -> bool:
        return set((await owners(theatre)).values()) == {""}

    await until_async(so, within=60, saying="the policy keeps its drivers")
    await theatre.at_rest()


async def test_built_drivers_run_on_when_precompiled_ones_are_asked_for(theatre: Theatre) -> None:
    before = await playing(theatre, **BUILT)
    await theatre.patch_policy({"driver": READY_MADE})
    await settled(theatre, *map(ready_made, KERNELS))
    assert await running(theatre) == before


async def test_precompiled_drivers_run_on_when_built_ones_are_asked_for(theatre: Theatre) -> None:
    before = await playing(theatre, **READY_MADE)
    await theatre.patch_policy({"driver": BUILT})
    await settled(theatre, DRIVER, f"{DRIVER}-rhel9")
    assert await running(theatre) == before


@pytest.mark.parametrize("form", [BUILT, READY_MADE], ids=["built", "precompiled"])
async def test_drivers_that_change_hands_and_come_back_run_on_under_whom_they_suit(
    theatre: Theatre, form: Mapping[str, Any]
) -> None:
    before = await playing(theatre, **form)
    at_first = await suits(theatre)
    assert len(set(at_first.values()) - {""}) > 1
    await handed_over(theatre, form)
    assert await running(theatre) == before
    await theatre.patch_policy({"driver": {"useNvidiaDriverCRD": False}})

    async def back() -> bool:
        return await suits(theatre) == at_first

    await until_async(back, within=60, saying="the policy does not take its drivers back")
    await theatre.at_rest()
    assert await running(theatre) == before


async def test_successors_that_wait_do_not_drive_out_drivers_of_a_lower_rank(theatre: Theatre) -> None:
    """A pod of a higher priority is let in where others are in its way, be it by their labels alone."""
    await theatre.nodes(gpu_node("low-0"), gpu_node("low-1"))
    await theatre.policy(merged(policy(**BUILT), daemonsets={"priorityClassName": "system-cluster-critical"}))
    await theatre.state("ready")
    before = await running(theatre)
    await handed_over(theatre, BUILT)
    await theatre.state("ready")
    assert await running(theatre) == before


async def test_precompiled_drivers_of_nvidias_operator_run_on_when_it_is_relieved(theatre: Theatre) -> None:
    before = await relieved(theatre)
    await handed_over(theatre, READY_MADE)
    assert await running(theatre) == before


async def test_they_run_on_also_when_they_are_let_go_slowly_by_an_operator_that_dies(theatre: Theatre) -> None:
    """Whichever DaemonSet is there yet, and may adopt pods, must find none."""
    before = await relieved(theatre)
    await theatre.stop()
    async with FaultProxy.before(load_config(theatre.cluster.kubeconfig)) as proxy:
        let_go = asyncio.Event()

        async def slowly(request: Request) -> None:
            if request.is_write and "/daemonsets/nvidia-driver-daemonset" in request.path:
                await asyncio.sleep(KERNEL_PAUSE * sum(held.method == request.method for held in proxy.writes))

        async def one_is_gone(request: Request) -> None:
            if request.method == "DELETE":
                let_go.set()

        proxy.on_request, proxy.on_answer = slowly, one_is_gone
        await theatre.start(proxy.config)
        await ask_nvidiadriver(theatre, READY_MADE)
        await let_go.wait()
        await theatre.kill()
        await theatre.start(proxy.config)
        await become_nobodys(theatre)
        await theatre.stop()
    assert await running(theatre) == before
    assert not [name for name in await theatre.daemonsets() if name.startswith(DRIVER)]


async def relieved(theatre: Theatre) -> dict[str, str]:
    """A fleet with drivers of NVIDIA's operator, all of whose DaemonSets select the same pods, and a selector cannot
    change; a policy of ours has taken them over. The UIDs of the drivers' pods."""
    nodes = [gpu_node(name, system=system, kernel=kernel) for name, (system, kernel) in FLEET.items()]
    gates = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true"}
    for node in nodes:
        node["metadata"]["labels"] |= gates
    await theatre.nodes(*nodes)
    for kernel in KERNELS:
        await theatre.client.create(LiveDaemonSet, _nvidias(ready_made(kernel), kernel), NAMESPACE)

    async def at_work() -> bool:
        return (await running(theatre)).keys() == FLEET.keys()

    await until_async(at_work, within=60, saying="the drivers do not start")
    before, theirs = await running(theatre), await owners(theatre)
    await theatre.policy(policy(**READY_MADE))

    async def taken_over() -> bool:
        held = await theatre.daemonsets()
        return all(held[ready_made(kernel)].metadata.labels.get(PodLabel.VARIANT) for kernel in KERNELS)

    await until_async(taken_over, within=60, saying="the policy does not take the DaemonSets over")
    await settled(theatre, *map(ready_made, KERNELS))
    assert await running(theatre) == before
    assert await owners(theatre) == theirs
    return before


async def test_nodes_move_to_another_nvidiadriver_with_their_drivers_running(theatre: Theatre) -> None:
    """At first one for all; then somebody brings another driver to a part of the fleet."""
    labels = {"pool": "a"}
    await theatre.nodes(gpu_node("move-0", labels=labels), gpu_node("move-1", labels=labels), gpu_node("stay-0"))
    everywhere = stock_driver()
    everywhere["spec"] |= {"upgradePolicy": {"autoUpgrade": False}}
    await theatre.client.create(StoredNVIDIADriver, everywhere)
    await theatre.policy(policy(useNvidiaDriverCRD=True))

    async def at_work() -> bool:
        return (await running(theatre)).keys() == {"move-0", "move-1", "stay-0"}

    await until_async(at_work, within=120, saying="the drivers do not start")
    await theatre.state("ready")
    before = await running(theatre)
    some = stock_driver()
    some["metadata"]["name"] = "some"
    some["spec"] |= {"default": False, "nodeSelector": labels, "version": "600.10.01"}
    some["spec"]["upgradePolicy"] = {"autoUpgrade": False}
    await theatre.client.create(StoredNVIDIADriver, some)

    async def moved() -> bool:
        found = await owners(theatre)
        held = {name: (await theatre.node(name)).metadata.labels.get(NodeLabel.DRIVER_OWNER) for name in found}
        statuses = [item.status for item in (await theatre.daemonsets()).values()]
        successors = [one for one in statuses if one.desired_number_scheduled > one.number_available]
        return held == {"move-0": "some", "move-1": "some", "stay-0": "default"} and len(successors) == 1

    await until_async(moved, within=60, saying="the nodes do not move")
    await theatre.at_rest()
    assert await running(theatre) == before
    upgrades = {"autoUpgrade": True, "maxUnavailable": "100%"}
    await theatre.client.patch(StoredNVIDIADriver, "some", {"spec": {"upgradePolicy": upgrades}})

    async def upgraded() -> bool:
        found, now = await owners(theatre), await running(theatre)
        return now.keys() == before.keys() and all(found[name] for name in ("move-0", "move-1"))

    await until_async(upgraded, within=90, saying="the other driver does not come")
    after = await running(theatre)
    assert after["stay-0"] == before["stay-0"]
    await theatre.client.patch(StoredNVIDIADriver, "some", {"spec": {"upgradePolicy": {"autoUpgrade": False}}})
    await theatre.client.patch(Node, "stay-0", {"metadata": {"labels": labels}})

    async def followed() -> bool:
        node, found = await theatre.node("stay-0"), await owners(theatre)
        return node.metadata.labels.get(NodeLabel.DRIVER_OWNER) == "some" and found["stay-0"] == ""

    await until_async(followed, within=60, saying="the last node does not move")
    await theatre.at_rest()
    assert await running(theatre) == after
    account = "nvidia-gpu-driver-default-ubuntu24.04"
    assert account in await theatre.held(LiveServiceAccount), "a pod that stays needs its account"
    await theatre.client.delete(OperandPod, (await drivers(theatre))["stay-0"].name, NAMESPACE)

    async def swept() -> bool:
        return account not in await theatre.held(LiveServiceAccount)

    await until_async(swept, within=60, saying="an account that nobody needs stays")


async def test_a_driver_follows_the_kernel_of_its_node(theatre: Theatre) -> None:
    before = await playing(theatre, **READY_MADE)
    labels = {NodeLabel.KERNEL.value: SIX_ELEVEN}
    await theatre.client.patch(Node, "kernel-0", {"metadata": {"labels": labels}})

    async def moved() -> bool:
        return (await owners(theatre)).get("kernel-0") == ready_made(SIX_ELEVEN)

    await until_async(moved, within=60, saying="the driver does not follow its kernel")
    await theatre.state("ready")
    after = await running(theatre)
    assert {name: after[name] for name in FLEET if name != "kernel-0"} == {
        name: before[name] for name in FLEET if name != "kernel-0"
    }


def _nvidias(name: str, kernel: str) -> dict[str, Any]:
    labels = {"app": DRIVER, PodLabel.COMPONENT.value: "nvidia-driver", PodLabel.PRECOMPILED.value: "true"}
    pod = {
        "nodeSelector": {"nvidia.com/gpu.deploy.driver": "true", NodeLabel.KERNEL.value: kernel},
        "priorityClassName": "system-node-critical",
        "containers": [{"name": "nvidia-driver-ctr", "image": f"example.com/driver:595-{kernel}"}],
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": DRIVER}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
