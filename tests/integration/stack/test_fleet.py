"""Fleets: of several kinds, of many nodes, and of none."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, StackCondition, StackReason
from gpu_control_plane.api.nvidia.status import State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.operator.views import DaemonSet
from integration.stack.operator_env import OperatorEnv, gpu_node
from integration.stack.scenarios import SIX_ELEVEN, stock
from unit.operator.stack.daemonset_names import DRIVER, MIG, MPS, TOOLKIT
from waiting import until, until_async

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

_UBUNTU, _OLD, _RHEL, _SLES = ("ubuntu", "24.04"), ("ubuntu", "22.04"), ("rhel", "9.4"), ("sles", "15-SP6")
_CARD = "feature.node.kubernetes.io/pci-10de.present"


async def test_each_node_of_a_mixed_fleet_has_the_driver_and_the_toolkit_that_suit_it(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("mix-a", system=_UBUNTU), gpu_node("mix-b", system=_UBUNTU, kernel=SIX_ELEVEN))
    await env.policy(stock())
    await env.state("ready")
    # The first have the plain names; of nodes that come together, those whose labels are written first.
    await env.nodes(gpu_node("mix-c", system=_OLD), gpu_node("mix-d", system=_RHEL, runtime="cri-o://1.36.0"))
    for name in (f"{DRIVER}-ubuntu22.04", f"{DRIVER}-rhel9", f"{TOOLKIT}-crio"):
        await until_async(partial(_serves, env, name), within=60, saying=f"{name} does not come")
    await until_async(lambda: _serves(env, TOOLKIT, 3), within=60, saying="a toolkit is missing")
    await env.state("ready")
    assert await _drivers(env) == {
        DRIVER: ("ubuntu24.04", {NodeLabel.OS_ID: "ubuntu", NodeLabel.OS_VERSION: "24.04"}),
        f"{DRIVER}-ubuntu22.04": ("ubuntu22.04", {NodeLabel.OS_ID: "ubuntu", NodeLabel.OS_VERSION: "22.04"}),
        f"{DRIVER}-rhel9": ("rhel9", {NodeLabel.OS_ID: "rhel", NodeLabel.OS_MAJOR: "9"}),
    }
    assert await _placed(env, TOOLKIT) == {
        **{name: [TOOLKIT] for name in ("mix-a", "mix-b", "mix-c")},
        "mix-d": [f"{TOOLKIT}-crio"],
    }
    before = await _pods(env)

    await env.nodes(gpu_node("mix-e", system=_SLES))
    await until_async(lambda: _serves(env, f"{DRIVER}-sles15-sp6"), within=60, saying="no driver for the newcomer")
    await env.state("ready")
    assert before.items() <= (await _pods(env)).items(), "running pods were replaced"
    assert await _placed(env, DRIVER) == {
        "mix-a": [DRIVER],
        "mix-b": [DRIVER],
        "mix-c": [f"{DRIVER}-ubuntu22.04"],
        "mix-d": [f"{DRIVER}-rhel9"],
        "mix-e": [f"{DRIVER}-sles15-sp6"],
    }

    # The nodes behind the plain name lose their cards: the others keep their DaemonSets and their pods.
    for name in ("mix-a", "mix-b"):
        await env.client.patch(Node, name, {"metadata": {"labels": {_CARD: "false"}}})
    await until_async(lambda: _gone(env, DRIVER), within=60, saying="a DaemonSet without nodes stays")
    await env.state("ready")
    after = await _pods(env)
    assert {
        name: uid for name, uid in before.items() if not name.startswith(("mix-a", "mix-b"))
    }.items() <= after.items()


async def test_a_policy_is_never_ready_before_every_pod_runs(env: OperatorEnv) -> None:
    nodes = [f"many-{number}" for number in range(30)]
    await env.nodes(*map(gpu_node, nodes))
    await until_async(lambda: _up(env, nodes), within=60, saying="nodes do not come up")
    async with _watched(env) as seen:
        few = {section: {"enabled": False} for section in ("gfd", "dcgmExporter", "migManager")}
        await env.policy(stock(**few))
        await env.state("ready")
    first = await _first_ready(env, seen, nodes=30)
    assert all(node.metadata.labels[NodeLabel.PRESENT] == "true" for node in await env.client.list(Node))
    ready = {state.name: (state.desired, state.ready) for state in first.status.states}
    assert ready["state-driver"] == ready["state-device-plugin"] == (30, 30)


async def test_nodes_that_have_their_labels_already_make_no_policy_ready(env: OperatorEnv) -> None:
    await env.nodes(gpu_node("again-0"), gpu_node("again-1"))
    await env.policy(stock())
    await env.state("ready")
    await env.stop()
    await env.client.delete(StoredClusterPolicy, "cluster-policy")
    await until_async(env.swept, within=120, saying="operands stay behind")
    assert (await env.node("again-0")).metadata.labels[NodeLabel.PRESENT] == "true"
    async with _watched(env) as seen:
        await env.policy(stock())
        await env.start()
        await env.state("ready")
    await _first_ready(env, seen, nodes=2)


async def test_a_cluster_without_cards_is_ready_and_says_why(env: OperatorEnv) -> None:
    bare = gpu_node("bare")
    bare["metadata"]["labels"] = {"kubernetes.io/hostname": "bare"}
    await env.nodes(bare)
    await env.policy(stock())
    await env.condition(StackCondition.READY, StackReason.NFD_LABELS_MISSING)
    labels = {"feature.node.kubernetes.io/cpu-model.id": "1"}
    await env.client.patch(Node, "bare", {"metadata": {"labels": labels}})
    await env.condition(StackCondition.READY, StackReason.NO_GPU_NODES)
    assert (await env.state("ready")).status.states
    assert not await env.daemonsets()
    assert NodeLabel.PRESENT not in (await env.node("bare")).metadata.labels


@asynccontextmanager
async def _watched(env: OperatorEnv) -> AsyncIterator[list[StoredClusterPolicy]]:
    """Everything that policies say from now on, until one is ready."""
    seen: list[StoredClusterPolicy] = []
    cache: Cache[StoredClusterPolicy] = Cache(StoredClusterPolicy, ApiSource(env.client, StoredClusterPolicy))
    cache.on_change(lambda _old, new: seen.append(new) if new is not None else None)
    watching = asyncio.create_task(cache.run())
    await cache.synced()
    yield seen
    await until(lambda: any(policy.status.state is State.READY for policy in seen), within=60)
    watching.cancel()
    await asyncio.wait((watching,))


async def _first_ready(env: OperatorEnv, seen: list[StoredClusterPolicy], *, nodes: int) -> StoredClusterPolicy:
    """The first time that a policy was ready; by then every DaemonSet had run for a while."""
    assert len({policy.metadata.uid for policy in seen}) == 1
    assert seen[0].status.state is None
    first = next(policy for policy in seen if policy.status.state is State.READY)
    for name, daemonset in (await env.daemonsets()).items():
        numbers = daemonset.status
        assert numbers.desired_number_scheduled == numbers.number_available == (0 if name in (MPS, MIG) else nodes)
        assert int(daemonset.metadata.resource_version) < int(first.metadata.resource_version), name
    return first


async def _drivers(env: OperatorEnv) -> dict[str, tuple[str, dict[str, str]]]:
    """Of each driver DaemonSet, for which system its image is and what it selects besides its gate."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for name, daemonset in (await env.daemonsets()).items():
        if name.startswith(DRIVER):
            pod = daemonset.spec.template.spec
            selector = {key: value for key, value in pod.node_selector.items() if not key.startswith("nvidia.com/")}
            found[name] = pod.containers[0].image.rpartition("-")[2], selector
    return found


async def _placed(env: OperatorEnv, prefix: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in await env.pods():
        if pod.controller and pod.controller.name.startswith(prefix):
            found.setdefault(pod.spec.node_name, []).append(pod.controller.name)
    return found


async def _pods(env: OperatorEnv) -> dict[str, str]:
    """The UID of each pod, by node and name."""
    found = {f"{pod.spec.node_name}/{pod.name}": pod.metadata.uid for pod in await env.pods()}
    assert max(Counter(found.values()).values()) == 1
    return found


async def _serves(env: OperatorEnv, name: str, nodes: int = 1) -> bool:
    found: DaemonSet | None = (await env.daemonsets()).get(name)
    return found is not None and found.status.number_available == nodes


async def _gone(env: OperatorEnv, name: str) -> bool:
    return name not in await env.daemonsets()


async def _up(env: OperatorEnv, names: list[str]) -> bool:
    found = await env.client.list(Node)
    return {node.name for node in found if not node.spec.taints} >= set(names)
