"""Whatever another writer does to an object of the stack is undone at once, and an Event says so."""

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


class ForeignChange(NamedTuple):
    """Another writer's change of an object: a merge patch, or a deletion without one."""

    kind: type[Live]
    name: str
    patch: Mapping[str, Any] | None


def _pod(name: str, **fields: Any) -> ForeignChange:
    return ForeignChange(LiveDaemonSet, name, {"spec": {"template": {"spec": fields}}})


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
    ForeignChange(LiveDaemonSet, MIG, {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}}),
    ForeignChange(
        LiveDaemonSet, MIG, {"spec": {"template": {"metadata": {"annotations": {"sidecar.example/inject": "yes"}}}}}
    ),
    _pod(MIG, hostNetwork=True),
    ForeignChange(LiveDaemonSet, MIG, {"metadata": {"labels": {PodLabel.OPERAND: None}}}),
)
AT_ONCE = (
    ForeignChange(LiveDaemonSet, "gpu-feature-discovery", None),
    ForeignChange(LiveServiceAccount, "nvidia-driver", None),
    ForeignChange(LiveServiceAccount, "nvidia-dcgm-exporter", {"metadata": {"ownerReferences": None}}),
    ForeignChange(LiveRole, "nvidia-driver", {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
    ForeignChange(
        LiveRole, "nvidia-mig-manager", {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
    ),
    ForeignChange(LiveRoleBinding, "nvidia-driver", None),
    ForeignChange(LiveClusterRole, "nvidia-driver", {"rules": []}),
    ForeignChange(LiveClusterRoleBinding, "nvidia-driver", {"subjects": []}),
    ForeignChange(LiveConfigMap, "default-mig-parted-config", {"data": {"config-default.yaml": "", "more": "text"}}),
    ForeignChange(LiveConfigMap, "nvidia-driver-startup-probe", None),
    ForeignChange(LiveConfigMap, "nvidia-device-plugin-entrypoint", {"data": None, "immutable": True}),
    ForeignChange(LiveConfigMap, "nvidia-mig-manager-entrypoint", {"metadata": {"labels": {PodLabel.OPERAND: None}}}),
    ForeignChange(
        LiveService, "nvidia-dcgm-exporter", {"spec": {"publishNotReadyAddresses": True, "selector": {"app": "no"}}}
    ),
    ForeignChange(LiveService, "gpu-operator", {"spec": {"ports": [{"name": "gpu-operator-metrics", "port": 8081}]}}),
    ForeignChange(LiveRuntimeClass, "nvidia-cdi", {"overhead": {"podFixed": {"cpu": "1"}}}),
    ForeignChange(LiveRuntimeClass, "nvidia-legacy", None),
    ForeignChange(LiveServiceAccount, "nvidia-mig-manager", {"metadata": {"labels": {PodLabel.OPERAND: None}}}),
)


async def test_every_object_is_repaired_and_an_event_says_so(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("drift-0"))
    await env.policy(stock())
    await env.state("ready")
    await env.at_rest()
    assert not await env.events(StackEvent.DRIFT_REPAIRED)
    for change in ON_ONE:
        await _repaired(env, change)
        await env.event(StackEvent.DRIFT_REPAIRED, f"DaemonSet/{MIG}")
    await until_async(lambda: _repaired_at_once(env), within=120, saying="no Event names many repairs at once")
    for change in AT_ONCE[:3]:
        await _repaired(env, change)
        await env.event(StackEvent.DRIFT_REPAIRED, f"{change.kind.resource.kind}/{change.name}")
    await env.state("ready")


async def test_an_object_stays_if_the_api_server_refuses_its_replacement(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("bad-0"))
    await env.policy(stock())
    await env.state("ready")
    before = await env.client.get(LiveDaemonSet, EXPORTER, NAMESPACE)
    await env.patch_policy({"dcgmExporter": {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}})
    policy = await env.state("notReady")
    reported = {state.name: state.message for state in policy.status.states if state.state == "failed"}
    assert set(reported) == {"state-dcgm-exporter"}
    assert "must be less than or equal to cpu limit" in reported["state-dcgm-exporter"]
    after = await env.client.get(LiveDaemonSet, EXPORTER, NAMESPACE)
    assert (after.metadata.uid, after.metadata.generation) == (before.metadata.uid, before.metadata.generation)
    assert after.body() == before.body()
    await env.patch_policy({"dcgmExporter": {"resources": None}})
    await env.state("ready")


async def test_an_object_that_the_api_server_refused_for_a_while_is_no_drift(env: OperatorEnv) -> None:
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


async def _repaired_at_once(env: OperatorEnv) -> bool:
    """Whether one Event names several changes that were made at once. How many of them the operator sees together is
    random, so they may have to be repeated."""
    await asyncio.gather(*(_repaired(env, change) for change in AT_ONCE))
    notes = await env.events(StackEvent.DRIFT_REPAIRED)
    return any(" more; all is as the ClusterPolicy says" in note for note in notes)


async def _repaired(env: OperatorEnv, change: ForeignChange) -> None:
    """Make the change, and wait until it is undone."""
    namespace = NAMESPACE if change.kind.resource.namespaced else None
    before = await env.client.get(change.kind, change.name, namespace)
    if change.patch is None:
        await env.client.delete(change.kind, change.name, namespace)
    else:
        changed = await env.client.patch(change.kind, change.name, change.patch, namespace=namespace)
        assert changed.metadata.resource_version != before.metadata.resource_version, f"{change} does nothing"

    async def undone() -> bool:
        now = (await env.held(change.kind)).get(change.name)
        return (
            now is not None
            and now.metadata.owner_references == before.metadata.owner_references
            and now.metadata.labels == before.metadata.labels
            and _alike(now.body(), before.body())
        )

    await until_async(undone, within=60, saying=f"{change} stays")


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
