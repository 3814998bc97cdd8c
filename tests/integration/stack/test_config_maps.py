"""A ConfigMap that a policy names and that does not exist stops nothing else, and is waited for."""

import pytest

from gpu_control_plane.operator.stack.live import LiveConfigMap
from integration.stack.operator_env import NAMESPACE, OperatorEnv, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import EXPORTER

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_METRICS = "metrics-of-a-person"


async def test_a_missing_config_map_is_named_and_what_runs_stays(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("map-0"))
    await env.policy(stock())
    await env.state("ready")
    before = (await env.daemonsets())[EXPORTER]
    await env.patch_policy({"dcgmExporter": {"config": {"name": _METRICS}}})
    policy = await env.state("notReady")
    assert {state.name: state.message for state in policy.status.states if state.state == "failed"} == {
        "state-dcgm-exporter": (
            f"the ConfigMap {_METRICS}, which dcgmExporter.config names, is not in namespace {NAMESPACE}: create it"
        )
    }
    assert (await env.daemonsets())[EXPORTER].spec == before.spec

    await env.client.create(LiveConfigMap, {"metadata": {"name": _METRICS}, "data": {"a.csv": ""}}, NAMESPACE)
    while not any("has no key dcgm-metrics.csv" in state.message for state in policy.status.states):
        policy = await env.next_status(policy)
    data = {"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, temperature"}
    await env.client.patch(LiveConfigMap, _METRICS, {"data": data}, namespace=NAMESPACE)
    await env.state("ready")
    assert (await env.daemonsets())[EXPORTER].metadata.generation > before.metadata.generation
    await env.client.delete(LiveConfigMap, _METRICS, NAMESPACE)
