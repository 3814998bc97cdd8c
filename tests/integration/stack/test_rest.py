"""An operator that finds everything as it should be writes nothing at all, however often it looks."""

import asyncio
import contextlib

import pytest

from fault_proxy import FaultProxy, Request
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, StackReason, UpgradeState
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import load_config
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.operator.stack.live import LiveDaemonSet
from gpu_control_plane.operator.views import DaemonSet
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.api.nvidia.stock import stock_driver
from waiting import until, until_async, until_still

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]


async def test_neither_a_restart_nor_idle_time_costs_a_write(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("rest-0"), gpu_node("rest-1", system=("rhel", "9.4"), runtime="cri-o://1.36.0"))
    await env.policy(
        stock(
            dcgm={"enabled": True, "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}}},
            nodeStatusExporter={"enabled": True, "hostNetwork": True},
            gds={"enabled": True},
            dcgmExporter={"service": {"type": "NodePort"}},
        )
    )
    await env.state("ready")
    await until_async(
        lambda: _upgraded(env, "rest-0", "rest-1"), within=60, saying="drivers are not known to be as they should be"
    )
    await env.at_rest()
    await env.stop()
    await env.start()
    await env.at_rest()
    assert not env.writes()
    looks = env.reconciles("stack-status")
    # What kubelets write to a Node all day wakes no controller; a change of a pod's status makes the operator look.
    await env.client.patch(Node, "rest-0", {"metadata": {"annotations": {"example.com/seen": "now"}}})
    pod = await env.pod_of("nvidia-dcgm", "rest-0")
    await env.repair_pod(pod)
    await until(lambda: env.reconciles("stack-status") > looks, within=60)
    await env.at_rest()
    assert not env.writes()


async def test_a_restart_keeps_the_upgrade_report_until_the_scheduler_has_run(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("rest-2"), gpu_node("rest-3"))
    await env.policy(stock())
    await env.state("ready")
    await until_async(
        lambda: _upgraded(env, "rest-2", "rest-3"), within=60, saying="drivers are not known to be as they should be"
    )
    await env.at_rest()
    before = (await env.get_policy()).status
    assert before.upgrade is not None
    await env.stop()
    async with FaultProxy.before(load_config(env.cluster.kubeconfig)) as proxy:
        looking = asyncio.Event()
        proxy.on_request = lambda request: _hold_back(request, looking)
        await env.start(proxy.config)
        await until(lambda: env.reconciles("stack") and env.reconciles("stack-status"), within=60)
        await until_still(lambda: env.reconciles("stack-status"))
        assert not env.writes()
        looking.set()
        await until(lambda: env.reconciles("upgrade-scheduler"), within=60)
        await env.at_rest()
        assert not env.writes()
        await env.stop()
    assert (await env.get_policy()).status == before


async def test_a_restart_while_nvidiadrivers_are_removed_reports_no_unlabelled_node(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("rest-4"))
    driver = stock_driver()
    await env.client.create(StoredNVIDIADriver, driver)
    await env.policy(stock(driver={"useNvidiaDriverCRD": True, "upgradePolicy": {"autoUpgrade": False}}))
    await env.state("ready")
    name = (await _driver_of(env, driver["metadata"]["name"])).name
    await _keep(env, name, ["example.com/keep"])
    try:
        await env.patch_policy({"driver": {"useNvidiaDriverCRD": False}})
        await until_async(lambda: _leaves(env, name), within=60, saying="the NVIDIADriver's DaemonSet is kept")
        await env.condition("Error", StackReason.OPERAND_NOT_READY)
        await env.at_rest()
        await env.stop()
        async with FaultProxy.before(load_config(env.cluster.kubeconfig)) as proxy:
            proxy.on_request = lambda request: _daemonsets_last(request, env)
            await env.start(proxy.config)
            await env.at_rest()
            condition = find((await env.get_policy()).status.conditions, "Error")
            assert condition is not None
            assert condition.reason == StackReason.OPERAND_NOT_READY, condition.message
            await env.stop()
    finally:
        await _keep(env, name, None)


async def _daemonsets_last(request: Request, env: OperatorEnv) -> None:
    """Let a process see DaemonSets after everything else that determines the owner of a node."""
    runtime = env.runtime
    if runtime is not None and request.path.endswith("/daemonsets"):
        caches = [runtime.cache(kind) for kind in (Node, StoredClusterPolicy, StoredNVIDIADriver)]
        await until(lambda: all(cache.is_synced for cache in caches))


async def _driver_of(env: OperatorEnv, owner: str) -> DaemonSet:
    """The DaemonSet of an NVIDIADriver."""
    found = (await env.daemonsets()).values()
    return next(item for item in found if any(held.name == owner for held in item.metadata.owner_references))


async def _keep(env: OperatorEnv, daemonset: str, finalizers: list[str] | None) -> None:
    patch = {"metadata": {"finalizers": finalizers}}
    with contextlib.suppress(NotFound):
        await env.client.patch(LiveDaemonSet, daemonset, patch, namespace=NAMESPACE)


async def _leaves(env: OperatorEnv, daemonset: str) -> bool:
    held = (await env.daemonsets())[daemonset]
    return held.deleting and held.metadata.finalizers == ("example.com/keep",)


async def _hold_back(request: Request, until_set: asyncio.Event) -> None:
    """Nodes whose upgrade is in progress are listed before the first upgrade is started."""
    if str(NodeLabel.UPGRADE_STATE) in request.query.get("labelSelector", ""):
        await until_set.wait()


async def _upgraded(env: OperatorEnv, *names: str) -> bool:
    found = [await env.node(name) for name in names]
    return all(node.metadata.labels.get(NodeLabel.UPGRADE_STATE) == UpgradeState.DONE for node in found)
