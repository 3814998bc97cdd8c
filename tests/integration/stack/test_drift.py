"""Whatever another hand does to an object of the stack is undone at once, and told."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.api.nvidia.names import PodLabel, StackEvent
from gpu_control_plane.kube import load_config
from gpu_control_plane.operator.stack.live import (
    Live,
    LiveClusterRole,
    LiveClusterRoleBinding,
    LiveConfigMap,
    LiveDaemonSet,
    LiveRole,
    LiveRoleBinding,
    LiveRuntimeClass,
    LiveService,
    LiveServiceAccount,
)
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import EXPORTER, MIG
from waiting import until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]


class Hand(NamedTuple):
    """What somebody does to an object: a merge patch, or deletion without one."""

    kind: type[Live]
    name: str
    patch: Mapping[str, Any] | None


def _pod(name: str, **fields: Any) -> Hand:
    return Hand(LiveDaemonSet, name, {"spec": {"template": {"spec": fields}}})


def _container(**fields: Any) -> dict[str, Any]:
    return {"name": "nvidia-mig-manager", "image": "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0", **fields}


ON_ONE = (
    _pod(MIG, containers=[_container(image="evil.example/miner:1")]),
    _pod(MIG, containers=[_container(), {"name": "second", "image": "evil.example/miner:1"}]),
    _pod(MIG, nodeSelector=None),
    # How people scale a DaemonSet to nothing.
    _pod(MIG, nodeSelector={"scaled-to": "nothing"}),
    _pod(MIG, tolerations=[{"operator": "Exists"}]),
    _pod(MIG, containers=[_container(env=[{"name": "LD_PRELOAD", "value": "/evil.so"}])]),
    Hand(LiveDaemonSet, MIG, {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}}),
    Hand(LiveDaemonSet, MIG, {"spec": {"template": {"metadata": {"annotations": {"sidecar.example/inject": "yes"}}}}}),
    _pod(MIG, hostNetwork=True),
    Hand(LiveDaemonSet, MIG, {"metadata": {"labels": {PodLabel.OPERAND: None}}}),
)
AT_ONCE = (
    Hand(LiveDaemonSet, "gpu-feature-discovery", None),
    Hand(LiveServiceAccount, "nvidia-driver", None),
    Hand(LiveServiceAccount, "nvidia-dcgm-exporter", {"metadata": {"ownerReferences": None}}),
    Hand(LiveRole, "nvidia-driver", {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
    Hand(LiveRole, "nvidia-mig-manager", {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    Hand(LiveRoleBinding, "nvidia-driver", None),
    Hand(LiveClusterRole, "nvidia-driver", {"rules": []}),
    Hand(LiveClusterRoleBinding, "nvidia-driver", {"subjects": []}),
    Hand(LiveConfigMap, "default-mig-parted-config", {"data": {"config-default.yaml": "", "more": "text"}}),
    Hand(LiveConfigMap, "nvidia-driver-startup-probe", None),
    Hand(LiveConfigMap, "nvidia-device-plugin-entrypoint", {"data": None, "immutable": True}),
    Hand(LiveConfigMap, "nvidia-mig-manager-entrypoint", {"metadata": {"labels": {PodLabel.OPERAND: None}}}),
    Hand(LiveService, "nvidia-dcgm-exporter", {"spec": {"publishNotReadyAddresses": True, "selector": {"app": "no"}}}),
    Hand(LiveService, "gpu-operator", {"spec": {"ports": [{"name": "gpu-operator-metrics", "port": 8081}]}}),
    Hand(LiveRuntimeClass, "nvidia-cdi", {"overhead": {"podFixed": {"cpu": "1"}}}),
    Hand(LiveRuntimeClass, "nvidia-legacy", None),
    Hand(LiveServiceAccount, "nvidia-mig-manager", {"metadata": {"labels": {PodLabel.OPERAND: None}}}),
)


async def test_every_object_is_mended_and_the_repair_is_told(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("drift-0"))
    await env.policy(stock())
    await env.state("ready")
    await env.at_rest()
    assert not await env.events(StackEvent.DRIFT_REPAIRED)
    for hand in ON_ONE:
        await _mended(env, hand)
        await env.told(StackEvent.DRIFT_REPAIRED, f"DaemonSet/{MIG}")
    await until_async(lambda: _mended_at_once(env), within=120, saying="no Event tells of many repairs at once")
    for hand in AT_ONCE[:3]:
        await _mended(env, hand)
        await env.told(StackEvent.DRIFT_REPAIRED, f"{hand.kind.resource.kind}/{hand.name}")
    await env.state("ready")


async def test_what_the_api_server_refuses_does_not_take_away_what_is_there(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("bad-0"))
    await env.policy(stock())
    await env.state("ready")
    before = await env.client.get(LiveDaemonSet, EXPORTER, NAMESPACE)
    await env.patch_policy({"dcgmExporter": {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}})
    policy = await env.state("notReady")
    told = {state.name: state.message for state in policy.status.states if state.state == "failed"}
    assert set(told) == {"state-dcgm-exporter"}
    assert "must be less than or equal to cpu limit" in told["state-dcgm-exporter"]
    after = await env.client.get(LiveDaemonSet, EXPORTER, NAMESPACE)
    assert (after.metadata.uid, after.metadata.generation) == (before.metadata.uid, before.metadata.generation)
    assert after.body() == before.body()
    await env.patch_policy({"dcgmExporter": {"resources": None}})
    await env.state("ready")


async def test_what_the_api_server_refuses_for_a_while_is_nobodys_change(env: OperatorEnv) -> None:
    def refused(request: Request) -> bool:
        return request.method == "POST" and request.path.endswith("/daemonsets")

    await env.nodes(gpu_node("late-0"))
    await env.stop()
    async with FaultProxy.before(load_config(env.cluster.kubeconfig)) as proxy:
        proxy.plant(Fault(when=refused, times=float("inf"), status=403, reason="Forbidden"))
        await env.start(proxy.config)
        await env.policy(stock())
        held = await env.condition("Error", "ReconcileFailed")
        assert "a planted fault" in held.message
        proxy.faults.clear()
        await env.state("ready")
        await env.stop()  # by then all Events are written
    assert not await env.events(StackEvent.DRIFT_REPAIRED)


async def _mended_at_once(env: OperatorEnv) -> bool:
    """Whether what many hands did at once was told at once. How many of them have been at work when the operator looks
    is chance, so that they may have to come again."""
    await asyncio.gather(*(_mended(env, hand) for hand in AT_ONCE))
    notes = await env.events(StackEvent.DRIFT_REPAIRED)
    return any(" more; all is as the ClusterPolicy says" in note for note in notes)


async def _mended(env: OperatorEnv, hand: Hand) -> None:
    """Do it, and wait until it is undone."""
    namespace = NAMESPACE if hand.kind.resource.namespaced else None
    before = await env.client.get(hand.kind, hand.name, namespace)
    if hand.patch is None:
        await env.client.delete(hand.kind, hand.name, namespace)
    else:
        changed = await env.client.patch(hand.kind, hand.name, hand.patch, namespace=namespace)
        assert changed.metadata.resource_version != before.metadata.resource_version, f"{hand} does nothing"

    async def undone() -> bool:
        now = (await env.held(hand.kind)).get(hand.name)
        return (
            now is not None
            and now.metadata.owner_references == before.metadata.owner_references
            and now.metadata.labels == before.metadata.labels
            and _alike(now.body(), before.body())
        )

    await until_async(undone, within=60, saying=f"{hand} stays")


def _alike(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether nothing but what a new Service is given anew differs."""
    given = ("clusterIP", "clusterIPs")
    return all(
        {key: value for key, value in side.items() if key not in given}
        == {key: value for key, value in other.items() if key not in given}
        if isinstance(side, dict) and isinstance(other, dict)
        else side == other
        for side, other in ((now.get(name), before.get(name)) for name in {*now, *before})
    )
