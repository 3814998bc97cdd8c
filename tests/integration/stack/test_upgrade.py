"""Upgrades of a mixed fleet, and NVIDIADrivers that take over, with a real DaemonSet controller and scheduler."""

import asyncio
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.status import State
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Object, Resource, Selection, load_config
from gpu_control_plane.operator.driver_secrets import Secret
from gpu_control_plane.operator.stack.live import LiveServiceAccount
from gpu_control_plane.operator.upgrade.controller import UpgradeTiming
from gpu_control_plane.operator.upgrade.node_view import UpgradeLimits
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node, merged, spec_of
from unit.api.nvidia.stock import stock_driver, stock_policy
from unit.operator.stack.daemonset_names import DRIVER
from waiting import until, until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

SYSTEMS = (("ubuntu", "24.04"), ("ubuntu", "22.04"), ("rhel", "9.4"))
KERNELS = ("6.8.0-60-generic", "5.15.0-130-generic")
RUNTIMES = ("containerd://2.1.4", "cri-o://1.36.0")
OLD, NEW = "595.91.07", "600.10.01"
SECRET = "credentials-of-a-driver"


class ReplicaSet(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "ReplicaSet", "replicasets")


def fleet() -> list[dict[str, Any]]:
    """Three operating systems, two kernels and two runtimes, each with each."""
    return [
        gpu_node(f"n{one}{two}{three}", system=system, kernel=kernel, runtime=runtime)
        for one, system in enumerate(SYSTEMS)
        for two, kernel in enumerate(KERNELS)
        for three, runtime in enumerate(RUNTIMES)
    ]


def upgradable(**policy: Any) -> dict[str, Any]:
    return merged(
        spec_of(stock_policy()),
        driver={"version": OLD, "upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": 4, **policy}},
    )


def workload(node: str, limits: dict[str, int]) -> dict[str, Any]:
    """Pods on a node, which their controller would replace."""
    labels = {"app": f"work-{node}"}
    container = {"name": "main", "image": "example.com/work", "resources": {"limits": limits} if limits else {}}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    return {
        "metadata": {"name": f"work-{node}", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def driver_pods(env: OperatorEnv) -> dict[str, Pod]:
    """The driver pod of each node."""
    found = await env.client.list(
        Pod, Selection(namespace=NAMESPACE, labels="app.kubernetes.io/component=nvidia-driver")
    )
    pods: dict[str, Pod] = {}
    for pod in found:
        if not pod.spec.node_name:
            continue  # it waits until the one before it has gone
        assert pod.spec.node_name not in pods, f"{pod.spec.node_name} has two driver pods"
        pods[pod.spec.node_name] = pod
    return pods


def version(pod: Pod) -> str:
    return pod.spec.containers[0].image.rpartition(":")[2].split("-", 1)[0]


async def test_a_new_driver_goes_through_a_mixed_fleet(env: OperatorEnv) -> None:
    nodes = fleet()
    nodes[5]["metadata"]["labels"][str(NodeLabel.UPGRADE_SKIP)] = "true"
    skipped = nodes[5]["metadata"]["name"]
    await env.nodes(*nodes)
    await env.policy(upgradable(maxUnavailable="50%"))
    await env.state("ready")
    before = await driver_pods(env)
    assert {version(pod) for pod in before.values()} == {OLD}
    systems = {pod.spec.containers[0].image.rpartition("-")[2] for pod in before.values()}
    assert systems == {"ubuntu24.04", "ubuntu22.04", "rhel9"}
    await env.client.create(ReplicaSet, workload(skipped, {"nvidia.com/gpu": 1}), "default")
    await env.patch_policy({"driver": {"version": NEW}})

    async def through() -> bool:
        pods = await driver_pods(env)
        done = [node for node, pod in pods.items() if version(pod) == NEW]
        states = {node["metadata"]["name"]: (await env.node(node["metadata"]["name"])) for node in nodes}
        finished = [
            name
            for name, node in states.items()
            if node.metadata.labels.get(NodeLabel.UPGRADE_STATE) == UpgradeState.DONE and not node.spec.unschedulable
        ]
        return len(done) == len(finished) == len(nodes) - 1

    await until_async(through, within=120, saying="the new driver does not get through")
    after = await driver_pods(env)
    assert after[skipped].metadata.uid == before[skipped].metadata.uid
    node = await env.node(skipped)
    assert node.metadata.labels[NodeLabel.UPGRADE_STATE] == UpgradeState.REQUIRED
    assert not node.spec.unschedulable

    async def reported() -> bool:
        upgrade = (await env.get_policy()).status.upgrade
        return upgrade is not None and (upgrade.done, upgrade.skipped, upgrade.failed) == (len(nodes) - 1, 1, 0)

    await until_async(reported, saying="the upgrade is not reported")
    await env.client.delete(ReplicaSet, f"work-{skipped}", "default")


async def test_nvidiadrivers_take_over_running_drivers_and_upgrade_them_when_asked(env: OperatorEnv) -> None:
    await env.nodes(*(gpu_node(f"n{number}") for number in range(3)))
    await env.policy(upgradable())
    await env.state("ready")
    before = await driver_pods(env)
    manifest = stock_driver()
    manifest["spec"] |= {"version": NEW, "upgradePolicy": {"autoUpgrade": False}}
    name = manifest["metadata"]["name"]
    await env.client.create(StoredNVIDIADriver, manifest)
    await env.patch_policy({"driver": {"useNvidiaDriverCRD": True}})

    async def handed_over() -> bool:
        daemonsets = await env.daemonsets()
        owned = [(await env.node(f"n{number}")).metadata.labels.get(NodeLabel.DRIVER_OWNER) for number in range(3)]
        return "nvidia-driver-daemonset" not in daemonsets and owned == [name] * 3

    await until_async(handed_over, within=60, saying="the policy keeps its drivers")
    after = await driver_pods(env)
    assert {node: pod.metadata.uid for node, pod in after.items()} == {
        node: pod.metadata.uid for node, pod in before.items()
    }
    assert "nvidia-driver" in await env.held(LiveServiceAccount), "the pods that stay need their account"
    await env.client.patch(StoredNVIDIADriver, name, {"spec": {"upgradePolicy": {"autoUpgrade": True}}})

    async def upgraded() -> bool:
        pods = await driver_pods(env)
        driver = await env.client.get(StoredNVIDIADriver, name)
        over = [(await env.node(f"n{number}")).metadata.labels.get(NodeLabel.UPGRADE_STATE) for number in range(3)]
        return (
            {version(pod) for pod in pods.values()} == {NEW}
            and driver.status.state is State.READY
            and over == [UpgradeState.DONE] * 3
        )

    await until_async(upgraded, within=120, saying="the NVIDIADriver's driver does not come")
    nodes = [await env.node(f"n{number}") for number in range(3)]
    assert not any(node.spec.unschedulable for node in nodes)
    assert not any(NodeAnnotation.FAILURE in node.metadata.annotations for node in nodes)
    await env.state("ready")

    async def swept() -> bool:
        return "nvidia-driver" not in await env.held(LiveServiceAccount)

    await until_async(swept, within=150, saying="the account of the policy's drivers stays behind")


async def test_an_upgrade_in_progress_goes_on_when_nvidiadrivers_take_over(env: OperatorEnv) -> None:
    """Until its label names the new owner the node is in no upgrade group, and its upgrade is not switched off."""
    await env.stop()
    await env.start(upgrade_timing=UpgradeTiming(limits=UpgradeLimits(policy_change_grace_period=timedelta(hours=1))))
    name, work = "hands-0", "work-hands-0"
    patient = {"maxUnavailable": "100%", "waitForCompletion": {"podSelector": f"app={work}"}}
    await env.nodes(gpu_node(name))
    await env.policy(upgradable(**patient))
    await env.state("ready")
    await env.client.create(ReplicaSet, workload(name, {"nvidia.com/gpu": 1}), "default")

    async def workload_runs() -> bool:
        return bool(await env.client.list(Pod, Selection("default", labels=f"app={work}")))

    async def is_in(state: UpgradeState) -> bool:
        return (await env.node(name)).metadata.labels.get(NodeLabel.UPGRADE_STATE) == state

    await until_async(workload_runs, saying="there is no workload")
    await env.patch_policy({"driver": {"version": NEW}})
    await until_async(lambda: is_in(UpgradeState.WAIT_FOR_JOBS_REQUIRED), within=120, saying="no upgrade begins")
    started = (await env.node(name)).metadata.annotations[NodeAnnotation.STARTED]
    manifest = stock_driver()
    manifest["spec"] |= {"version": NEW, "upgradePolicy": {"autoUpgrade": True, **patient}}
    await env.client.create(StoredNVIDIADriver, manifest)
    await env.patch_policy({"driver": {"useNvidiaDriverCRD": True}})

    async def owned() -> bool:
        labels = (await env.node(name)).metadata.labels
        return bool(labels.get(NodeLabel.DRIVER_OWNER) == manifest["metadata"]["name"])

    await until_async(owned, within=120, saying="the node has no owner")
    assert await is_in(UpgradeState.WAIT_FOR_JOBS_REQUIRED)
    await env.client.patch(ReplicaSet, work, {"spec": {"replicas": 0}}, namespace="default")
    await until_async(lambda: is_in(UpgradeState.DONE), within=150, saying="the upgrade does not go on")
    node = await env.node(name)
    assert node.metadata.annotations[NodeAnnotation.STARTED] == started
    assert not node.spec.unschedulable
    assert version((await driver_pods(env))[name]) == NEW
    await env.client.delete(ReplicaSet, work, "default")


async def test_no_driver_in_use_is_replaced_because_its_daemonset_is_seen_late(env: OperatorEnv) -> None:
    """A new revision with the old template looks as if the driver stayed the same. The cache shows the old template if
    the answer to the write of the DaemonSet is lost, or a leader before this one has written it."""
    name = "late-0"
    await env.nodes(gpu_node(name))
    await env.policy(upgradable(maxUnavailable="100%"))
    await env.state("ready")
    await env.stop()

    async def state() -> str | None:
        return (await env.node(name)).metadata.labels.get(NodeLabel.UPGRADE_STATE)

    async def done() -> bool:
        found = (await driver_pods(env)).get(name)
        return await state() == UpgradeState.DONE and found is not None and version(found) == NEW

    async with FaultProxy.before(load_config(env.cluster.kubeconfig)) as proxy:
        seen = asyncio.Event()
        seen.set()

        async def hold_back(request: Request) -> None:
            if request.is_watch and request.path.endswith("/daemonsets"):
                await seen.wait()

        def changes_daemonset(request: Request) -> bool:
            return request.method == "PUT" and "/daemonsets/nvidia-driver-daemonset" in request.path

        def asked() -> bool:
            answers = (request for request, _ in proxy.answers if request.method == "GET")
            return any("/daemonsets/" in request.path for request in answers)

        proxy.on_chunk = hold_back
        await env.start(proxy.config)
        await env.at_rest()
        seen.clear()
        proxy.plant(Fault(when=changes_daemonset, lose_answer=True))
        await env.patch_policy({"driver": {"version": NEW}})
        await until(asked, within=120, saying="the DaemonSet is not read from the API server")
        assert await state() == UpgradeState.REQUIRED
        seen.set()
        await until_async(done, within=120, saying="no upgrade comes of it")
        await env.stop()


async def test_the_policy_takes_drivers_back_without_a_restart(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("back-0"))
    manifest = stock_driver()
    manifest["spec"] |= {"version": OLD, "upgradePolicy": {"autoUpgrade": False}}
    await env.client.create(StoredNVIDIADriver, manifest)
    await env.policy(merged(upgradable(autoUpgrade=False), driver={"useNvidiaDriverCRD": True}))
    await env.state("ready")
    before = await driver_pods(env)
    await env.patch_policy({"driver": {"useNvidiaDriverCRD": False}})

    async def back() -> bool:
        labels = (await env.node("back-0")).metadata.labels
        return "nvidia-driver-daemonset" in await env.daemonsets() and NodeLabel.DRIVER_OWNER not in labels

    await until_async(back, within=60, saying="the NVIDIADriver keeps its nodes")
    after = await driver_pods(env)
    assert after["back-0"].metadata.uid == before["back-0"].metadata.uid


async def test_no_driver_is_replaced_while_a_secret_that_it_needs_is_missing(env: OperatorEnv) -> None:
    """First the Secret that a new spec names has yet to come, then one goes while nodes wait for their upgrade."""
    await env.kill()
    limits = UpgradeLimits(missing_secret_interval=timedelta(0))
    await env.start(upgrade_timing=UpgradeTiming(limits=limits))
    await env.nodes(gpu_node("n0"), gpu_node("n1"))
    await env.policy(upgradable())
    await env.state("ready")
    daemonset, pods = (await env.daemonsets())[DRIVER], await driver_pods(env)

    async def replaced() -> bool:
        now = await driver_pods(env)
        nodes = [await env.node(name) for name in now]
        done = all(node.metadata.labels.get(NodeLabel.UPGRADE_STATE) == UpgradeState.DONE for node in nodes)
        uids = {pod.metadata.uid for pod in now.values()}
        return done and len(now) == len(pods) and uids.isdisjoint(pod.metadata.uid for pod in pods.values())

    async def waiting(*names: str) -> bool:
        nodes = [await env.node(name) for name in names]
        return {node.metadata.labels.get(NodeLabel.UPGRADE_STATE) for node in nodes} == {UpgradeState.REQUIRED}

    await env.patch_policy({"driver": {"version": NEW, "secretEnv": SECRET}})
    error = await env.condition("Error", "ReconcileFailed")
    missing = f"the Secret {SECRET}, which secretEnv names, is not in namespace {NAMESPACE}: create it"
    assert missing in error.message
    await env.event("OperandNotReady", missing)
    assert len([note for note in await env.events("OperandNotReady") if missing in note]) == 1
    assert (await env.daemonsets())[DRIVER].metadata.generation == daemonset.metadata.generation
    assert await driver_pods(env) == pods

    await env.client.create(Secret, {"metadata": {"name": SECRET}}, NAMESPACE)
    await until_async(replaced, within=120, saying="the driver is not replaced although the Secret is there")
    await env.state("ready")

    pods = await driver_pods(env)
    await env.patch_policy({"driver": {"version": OLD, "upgradePolicy": {"paused": True}}})
    await until_async(lambda: waiting(*pods), within=60, saying="no upgrade is asked for")
    await env.client.delete(Secret, SECRET, NAMESPACE)
    await env.patch_policy({"driver": {"upgradePolicy": {"paused": False}}})

    async def held_up() -> bool:
        upgrade = (await env.get_policy()).status.upgrade
        return upgrade is not None and f"without the Secret {NAMESPACE}/{SECRET}" in upgrade.message

    await until_async(held_up, within=60, saying="it is not said why no upgrade begins")
    assert await waiting(*pods)
    assert {pod.metadata.uid for pod in (await driver_pods(env)).values()} == {
        pod.metadata.uid for pod in pods.values()
    }
    await env.client.create(Secret, {"metadata": {"name": SECRET}}, NAMESPACE)
    await until_async(replaced, within=120, saying="the driver is not replaced although the Secret is back")
    await env.client.delete(Secret, SECRET, NAMESPACE)
