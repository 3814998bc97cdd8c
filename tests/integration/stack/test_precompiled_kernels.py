"""Drivers for several kernels and systems get another form or owner, and no running one is deleted.

The DaemonSet controller and the garbage collector are the real ones: a DaemonSet adopts whatever its selector finds
without an owner, and removes it where it is not meant to be.
"""

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, PodLabel
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Selection, load_config
from gpu_control_plane.operator.stack.live import LiveDaemonSet, LiveServiceAccount
from gpu_control_plane.operator.views import DaemonSet
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node, merged, spec_of
from integration.stack.scenarios import SIX_EIGHT, SIX_ELEVEN
from unit.api.nvidia.stock import stock_driver, stock_policy
from unit.operator.stack.daemonset_names import DRIVER
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

BUILT, READY_MADE = {"usePrecompiled": False, "version": "595.91.07"}, {"usePrecompiled": True, "version": "595"}
UBUNTU, RHEL = ("ubuntu", "24.04"), ("rhel", "9.4")
SYSTEMS = (
    (UBUNTU, SIX_EIGHT),
    (UBUNTU, SIX_ELEVEN),
    (RHEL, "5.14.0-427.el9"),
    (UBUNTU, SIX_EIGHT),
    (UBUNTU, SIX_ELEVEN),
    (RHEL, "5.14.0-503.el9"),
)
KERNELS = {
    SIX_EIGHT: "ubuntu24.04",
    SIX_ELEVEN: "ubuntu24.04",
    "5.14.0-427.el9": "rhel9.4",
    "5.14.0-503.el9": "rhel9.4",
}
KERNEL_PAUSE = 0.7
"""Seconds from one write of a DaemonSet to the next: time for other DaemonSets to adopt pods."""


def policy(**driver: Any) -> dict[str, Any]:
    """Only drivers, without upgrades: if a driver pod is deleted, that is a fault."""
    off = {"enabled": False}
    spec = merged(spec_of(stock_policy()), driver={"upgradePolicy": {"autoUpgrade": False}, **driver})
    others = ("toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager")
    return merged(spec, **dict.fromkeys(others, off))


async def drivers(env: OperatorEnv) -> dict[str, Pod]:
    """The driver pod that is on each node; those that wait for a place are not on one."""
    selection = Selection(namespace=NAMESPACE, labels=f"{PodLabel.COMPONENT}=nvidia-driver")
    found = [pod for pod in await env.client.list(Pod, selection) if pod.spec.node_name]
    assert len({pod.spec.node_name for pod in found}) == len(found)
    return {pod.spec.node_name: pod for pod in found}


async def running(env: OperatorEnv) -> dict[str, str]:
    """The UID of each node's driver pod that is ready."""
    return {
        node: pod.metadata.uid
        for node, pod in (await drivers(env)).items()
        if pod.containers_ready and not pod.deleting
    }


async def owners(env: OperatorEnv) -> dict[str, str]:
    found = await drivers(env)
    return {node: pod.controller.name if pod.controller else "" for node, pod in found.items()}


async def suits(env: OperatorEnv) -> dict[str, str]:
    """The kind of nodes that the policy's DaemonSet behind each node's driver is for. Which one of them has the plain
    name is decided by the nodes that have their labels first, and that may be others each time."""
    held = {name: item.metadata.labels.get(PodLabel.VARIANT, "") for name, item in (await env.daemonsets()).items()}
    return {node: held.get(owner, "") for node, owner in (await owners(env)).items()}


async def settled(env: OperatorEnv, *names: str) -> None:
    """Wait until these are the policy's driver DaemonSets and Kubernetes has done everything that it wants to do."""

    async def there() -> bool:
        found = {name: item for name, item in (await env.daemonsets()).items() if name.startswith("nvidia-")}
        held = {name: item for name, item in found.items() if _of_drivers(item)}
        return set(held) == set(names) and all(map(_looked_at, held.values()))

    await until_async(there, within=60, saying=f"the drivers are not {names}")
    await env.at_rest()


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


def fleet() -> list[dict[str, Any]]:
    """Nodes of names that were never there before: KWOK 0.8 may stop renewing the Lease of every node when one comes
    back under its name while its last Lease is being written."""
    token = secrets.token_hex(2)
    return [
        gpu_node(f"kernel-{token}-{index}", system=system, kernel=kernel)
        for index, (system, kernel) in enumerate(SYSTEMS)
    ]


def names(nodes: Iterable[dict[str, Any]]) -> set[str]:
    return {node["metadata"]["name"] for node in nodes}


async def playing(env: OperatorEnv, **driver: Any) -> dict[str, str]:
    """A fleet with running drivers; the UIDs of their pods."""
    nodes = fleet()
    await env.nodes(*nodes)
    await env.policy(policy(**driver))
    await env.state("ready")
    found = await running(env)
    assert found.keys() == names(nodes)
    return found


async def handed_over(env: OperatorEnv, form: Mapping[str, Any]) -> None:
    """Leave drivers to an NVIDIADriver, and wait until the policy's pods have no owner."""
    await ask_nvidiadriver(env, form)
    await become_orphans(env)


async def ask_nvidiadriver(env: OperatorEnv, form: Mapping[str, Any]) -> None:
    manifest = stock_driver()
    manifest["spec"] |= {**form, "upgradePolicy": {"autoUpgrade": False}, "priorityClassName": ""}
    await env.client.create(StoredNVIDIADriver, manifest)
    await env.patch_policy({"driver": {"useNvidiaDriverCRD": True}})


async def become_orphans(env: OperatorEnv) -> None:
    async def so() -> bool:
        return set((await owners(env)).values()) == {""}

    await until_async(so, within=60, saying="the policy keeps its drivers")
    await env.at_rest()


async def test_built_drivers_run_on_when_precompiled_ones_are_asked_for(env: OperatorEnv) -> None:
    before = await playing(env, **BUILT)
    await env.patch_policy({"driver": READY_MADE})
    await settled(env, *map(ready_made, KERNELS))
    assert await running(env) == before


async def test_precompiled_drivers_run_on_when_built_ones_are_asked_for(env: OperatorEnv) -> None:
    before = await playing(env, **READY_MADE)
    await env.patch_policy({"driver": BUILT})
    await settled(env, DRIVER, f"{DRIVER}-rhel9")
    assert await running(env) == before


@pytest.mark.parametrize("form", [BUILT, READY_MADE], ids=["built", "precompiled"])
async def test_drivers_run_on_when_nvidiadrivers_take_over_and_the_policy_takes_them_back(
    env: OperatorEnv, form: Mapping[str, Any]
) -> None:
    before = await playing(env, **form)
    at_first = await suits(env)
    assert len(set(at_first.values()) - {""}) > 1
    await handed_over(env, form)
    assert await running(env) == before
    await env.patch_policy({"driver": {"useNvidiaDriverCRD": False}})

    async def back() -> bool:
        return await suits(env) == at_first

    await until_async(back, within=60, saying="the policy does not take its drivers back")
    await env.at_rest()
    assert await running(env) == before


async def test_waiting_successors_do_not_preempt_drivers_with_a_lower_priority(env: OperatorEnv) -> None:
    """A pod of a higher priority is let in where others are in its way, be it by their labels alone."""
    await env.nodes(gpu_node("low-0"), gpu_node("low-1"))
    await env.policy(merged(policy(**BUILT), daemonsets={"priorityClassName": "system-cluster-critical"}))
    await env.state("ready")
    before = await running(env)
    await handed_over(env, BUILT)
    await env.state("ready")
    assert await running(env) == before


async def test_precompiled_drivers_of_nvidias_operator_run_on_after_a_take_over(env: OperatorEnv) -> None:
    before = await relieved(env)
    await handed_over(env, READY_MADE)
    assert await running(env) == before


async def test_drivers_run_on_also_when_the_operator_dies_while_it_orphans_them(env: OperatorEnv) -> None:
    """Whichever DaemonSet is there yet, and may adopt pods, must find none."""
    before = await relieved(env)
    await env.stop()
    async with FaultProxy.before(load_config(env.cluster.kubeconfig)) as proxy:
        let_go = asyncio.Event()

        async def slowly(request: Request) -> None:
            if request.is_write and "/daemonsets/nvidia-driver-daemonset" in request.path:
                await asyncio.sleep(KERNEL_PAUSE * sum(held.method == request.method for held in proxy.writes))

        async def one_is_gone(request: Request) -> None:
            if request.method == "DELETE":
                let_go.set()

        proxy.on_request, proxy.on_answer = slowly, one_is_gone
        await env.start(proxy.config)
        await ask_nvidiadriver(env, READY_MADE)
        await let_go.wait()
        await env.kill()
        await env.start(proxy.config)
        await become_orphans(env)
        await env.stop()
    assert await running(env) == before
    assert not [name for name in await env.daemonsets() if name.startswith(DRIVER)]


async def relieved(env: OperatorEnv) -> dict[str, str]:
    """A fleet with drivers of NVIDIA's operator, all of whose DaemonSets select the same pods, and a selector cannot
    change; a policy of ours has taken them over. The UIDs of the drivers' pods."""
    nodes = fleet()
    gates = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true"}
    for node in nodes:
        node["metadata"]["labels"] |= gates
    await env.nodes(*nodes)
    for kernel in KERNELS:
        await env.client.create(LiveDaemonSet, _nvidias(ready_made(kernel), kernel), NAMESPACE)

    async def at_work() -> bool:
        return (await running(env)).keys() == names(nodes)

    await until_async(at_work, within=60, saying="the drivers do not start")
    before, theirs = await running(env), await owners(env)
    await env.policy(policy(**READY_MADE))

    async def taken_over() -> bool:
        held = await env.daemonsets()
        return all(held[ready_made(kernel)].metadata.labels.get(PodLabel.VARIANT) for kernel in KERNELS)

    await until_async(taken_over, within=60, saying="the policy does not take the DaemonSets over")
    await settled(env, *map(ready_made, KERNELS))
    assert await running(env) == before
    assert await owners(env) == theirs
    return before


async def test_nodes_move_to_another_nvidiadriver_with_their_drivers_running(env: OperatorEnv) -> None:
    """First one NVIDIADriver for all nodes, then another one for a part of them."""
    labels = {"pool": "a"}
    await env.nodes(gpu_node("move-0", labels=labels), gpu_node("move-1", labels=labels), gpu_node("stay-0"))
    everywhere = stock_driver()
    everywhere["spec"] |= {"upgradePolicy": {"autoUpgrade": False}}
    await env.client.create(StoredNVIDIADriver, everywhere)
    await env.policy(policy(useNvidiaDriverCRD=True))

    async def at_work() -> bool:
        return (await running(env)).keys() == {"move-0", "move-1", "stay-0"}

    await until_async(at_work, within=120, saying="the drivers do not start")
    await env.state("ready")
    before = await running(env)
    some = stock_driver()
    some["metadata"]["name"] = "some"
    some["spec"] |= {"default": False, "nodeSelector": labels, "version": "600.10.01"}
    some["spec"]["upgradePolicy"] = {"autoUpgrade": False}
    await env.client.create(StoredNVIDIADriver, some)

    async def moved() -> bool:
        found = await owners(env)
        held = {name: (await env.node(name)).metadata.labels.get(NodeLabel.DRIVER_OWNER) for name in found}
        statuses = [item.status for item in (await env.daemonsets()).values()]
        successors = [one for one in statuses if one.desired_number_scheduled > one.number_available]
        return held == {"move-0": "some", "move-1": "some", "stay-0": "default"} and len(successors) == 1

    await until_async(moved, within=60, saying="the nodes do not move")
    await env.at_rest()
    assert await running(env) == before
    upgrades = {"autoUpgrade": True, "maxUnavailable": "100%"}
    await env.client.patch(StoredNVIDIADriver, "some", {"spec": {"upgradePolicy": upgrades}})

    async def upgraded() -> bool:
        found, now = await owners(env), await running(env)
        return now.keys() == before.keys() and all(found[name] for name in ("move-0", "move-1"))

    await until_async(upgraded, within=90, saying="the other driver does not come")
    after = await running(env)
    assert after["stay-0"] == before["stay-0"]
    await env.client.patch(StoredNVIDIADriver, "some", {"spec": {"upgradePolicy": {"autoUpgrade": False}}})
    await env.client.patch(Node, "stay-0", {"metadata": {"labels": labels}})

    async def followed() -> bool:
        node, found = await env.node("stay-0"), await owners(env)
        return node.metadata.labels.get(NodeLabel.DRIVER_OWNER) == "some" and found["stay-0"] == ""

    await until_async(followed, within=60, saying="the last node does not move")
    await env.at_rest()
    assert await running(env) == after
    account = "nvidia-gpu-driver-default-ubuntu24.04"
    assert account in await env.held(LiveServiceAccount), "a pod that stays needs its account"
    await env.client.delete(Pod, (await drivers(env))["stay-0"].name, NAMESPACE)

    async def swept() -> bool:
        return account not in await env.held(LiveServiceAccount)

    await until_async(swept, within=60, saying="an account that is not needed stays")


async def test_a_driver_follows_the_kernel_of_its_node(env: OperatorEnv) -> None:
    before = await playing(env, **READY_MADE)
    first = min(before)
    labels = {NodeLabel.KERNEL.value: SIX_ELEVEN}
    await env.client.patch(Node, first, {"metadata": {"labels": labels}})

    async def moved() -> bool:
        return (await owners(env)).get(first) == ready_made(SIX_ELEVEN)

    await until_async(moved, within=60, saying="the driver does not follow its kernel")
    await env.state("ready")
    after = await running(env)
    assert after.keys() == before.keys()
    assert [name for name in before if after[name] != before[name]] == [first]


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
