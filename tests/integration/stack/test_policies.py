"""Every kind of policy becomes ready on nodes it suits, brings what it should and nothing else; and whatever breaks
then is named with its node and the reason."""

from collections.abc import Iterable

import pytest

from gpu_control_plane.api.nvidia.names import PodLabel, StackEvent
from gpu_control_plane.api.nvidia.status import OperandState, State, StateReport
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.live import CORE_KINDS, LiveConfigMap, LiveDaemonSet
from integration.stack.operator_env import NAMESPACE, OperatorEnv
from integration.stack.scenarios import SCENARIOS, Scenario, Seen

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_REASONS = ("ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError", "RunContainerError")


@pytest.mark.parametrize("scenario", [pytest.param(held, id=name) for name, held in SCENARIOS.items()])
async def test_a_policy_becomes_ready_and_what_breaks_is_named(env: OperatorEnv, scenario: Scenario) -> None:
    for name, data in scenario.config_maps.items():
        await env.client.create(LiveConfigMap, {"metadata": {"name": name}, "data": data}, NAMESPACE)
    await env.nodes(*scenario.nodes)
    await env.policy(scenario.spec)
    await env.state("ready")
    scenario.check(await _look(env))
    if scenario.broken:
        await _break_each(env)
    for name in scenario.config_maps:
        await env.client.delete(LiveConfigMap, name, NAMESPACE)


async def _look(env: OperatorEnv) -> Seen:
    daemonsets = await env.held(LiveDaemonSet)
    manifests = {name: {"metadata": {"name": name}, **held.body()} for name, held in daemonsets.items()}
    objects = {f"{kind.resource.kind}/{name}" for kind in CORE_KINDS for name in await env.held(kind)}
    placed: dict[str, set[str]] = {}
    for pod in await env.pods():
        if pod.controller:
            placed.setdefault(pod.spec.node_name, set()).add(pod.controller.name)
    return Seen(
        daemonsets={name: DaemonSetManifest(manifest) for name, manifest in manifests.items()},
        objects=frozenset(name for name in objects if not name.startswith("DaemonSet/")),
        placed={node: frozenset(names) for node, names in placed.items()},
    )


async def _break_each(env: OperatorEnv) -> None:
    """Break one pod of every DaemonSet, check what the status says, and repair them."""
    broken = await _one_of_each(env)
    reasons = dict(zip(sorted(broken), _REASONS * len(broken), strict=False))
    for state, pod in broken.items():
        await env.break_pod(pod, reasons[state])
    expected = {state: (pod.spec.node_name, reasons[state]) for state, pod in broken.items()}
    assert len(expected) >= 4

    policy = await env.state(State.NOT_READY)
    while _reported(policy.status.states) != expected:
        policy = await env.next_status(policy)
    message = next(held.message for held in policy.status.conditions if held.type == "Error")
    for state, (node, reason) in expected.items():
        assert f"{state}: {node} ({reason})" in message
        await env.event(StackEvent.OPERAND_NOT_READY, state, node, reason)

    for pod in broken.values():
        await env.repair_pod(pod)
    policy = await env.state(State.READY)
    assert all(not state.nodes and not state.message for state in policy.status.states)


async def _one_of_each(env: OperatorEnv) -> dict[str, Pod]:
    daemonsets = await env.held(LiveDaemonSet)
    state_of = {name: held.metadata.labels[PodLabel.OPERAND] for name, held in daemonsets.items()}
    return {state_of[pod.controller.name]: pod for pod in await env.pods() if pod.controller}


def _reported(states: Iterable[StateReport]) -> dict[str, tuple[str, str]]:
    return {
        state.name: (trouble.node, trouble.reason)
        for state in states
        if state.state is OperandState.NOT_READY
        for trouble in state.nodes
    }
