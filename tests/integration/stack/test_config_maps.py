"""A ConfigMap that a policy names and nobody has made keeps nothing else from running, and is waited for."""

import pytest

from gpu_control_plane.operator.stack.live import LiveConfigMap
from integration.stack.operator_env import NAMESPACE, Theatre, gpu_node
from integration.stack.scenarios import stock
from unit.operator.stack.daemonset_names import EXPORTER

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_METRICS = "metrics-of-a-person"


async def test_a_missing_one_is_named_and_what_runs_stays_until_it_comes(theatre: Theatre) -> None:
    await theatre.nodes(gpu_node("map-0"))
    await theatre.policy(stock())
    await theatre.state("ready")
    before = (await theatre.daemonsets())[EXPORTER]
    await theatre.patch_policy({"dcgmExporter": {"config": {"name": _METRICS}}})
    policy = await theatre.state("notReady")
    assert {state.name: state.message for state in policy.status.states if state.state == "failed"} == {
        "state-dcgm-exporter": (
            f"the ConfigMap {_METRICS}, which dcgmExporter.config names, is not in namespace {NAMESPACE}: create it"
        )
    }
    assert (await theatre.daemonsets())[EXPORTER].spec == before.spec

    await theatre.client.create(LiveConfigMap, {"metadata": {"name": _METRICS}, "data": {"a.csv": ""}}, NAMESPACE)
    while not any("has no key dcgm-metrics.csv" in state.message for state in policy.status.states):
        policy = await theatre.next_status(policy)
    data = {"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, temperature"}
    await theatre.client.patch(LiveConfigMap, _METRICS, {"data": data}, namespace=NAMESPACE)
    await theatre.state("ready")
    assert (await theatre.daemonsets())[EXPORTER].metadata.generation > before.metadata.generation
    await theatre.client.delete(LiveConfigMap, _METRICS, NAMESPACE)
