"""Driver upgrades on a real API server: its evictions, its budgets, its conflicts."""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, StackEvent, UpgradeState
from gpu_control_plane.api.nvidia.upgradepolicy import Drain, PodDeletion, UpgradePolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime, Selection, load_config
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.dynamic_caches import DynamicCaches
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.leader import Lease
from gpu_control_plane.local import Cluster
from gpu_control_plane.operator.upgrade.controller import UpgradeController, UpgradeTiming
from gpu_control_plane.operator.upgrade.groups import UpgradeGroup
from gpu_control_plane.operator.upgrade.node_view import NodeView, UpgradeLimits
from integration.operator.upgrade_env import LEASE, UpgradeEnv, reconciles, state_of, writes
from waiting import until, until_async, until_still

S = UpgradeState
POLICY = UpgradePolicy(
    auto_upgrade=True,
    max_parallel_upgrades=4,
    max_unavailable="50%",
    pod_deletion=PodDeletion(timeout_seconds=12),
)
"""A pod whose eviction is accepted is gone long before that, even if the operator dies meanwhile."""
GUARDED = {"guarded": "yes"}


@pytest.fixture
async def env(client: Client, namespace: str) -> AsyncIterator[UpgradeEnv]:
    await install(client)
    made = UpgradeEnv(client, namespace)
    yield made
    for name in made.nodes:
        await client.delete(Node, name)


class Watch:
    """Counts, at every change of a node, how many are in progress."""

    def __init__(self, nodes: Cache[Node], mine: list[str]) -> None:
        self._nodes = nodes
        self._mine = set(mine)
        self.most = 0
        nodes.on_change(self._look)

    def _look(self, _old: Node | None, _new: Node | None) -> None:
        views = [
            NodeView(name=node.name, labels=node.metadata.labels) for node in self._nodes if node.name in self._mine
        ]
        self.most = max(self.most, sum(view.occupies_slot for view in views))


async def test_twenty_nodes_are_upgraded_by_an_operator_that_keeps_dying(env: UpgradeEnv, api_server: Cluster) -> None:
    config = load_config(api_server.kubeconfig)
    skipped = [await env.add_node(f"skip-{number}", {NodeLabel.UPGRADE_SKIP: "true"}) for number in range(2)]
    cordoned = [await env.add_node(f"cordoned-{number}", cordoned=True) for number in range(2)]
    guarded = [await env.add_node(f"guarded-{number}") for number in range(2)]
    checked = [await env.add_node(f"agent-{number}") for number in range(2)]
    plain = [await env.add_node(f"plain-{number}") for number in range(12)]
    for name in checked:
        await env.add_agent(name)
    await env.publish_driver()
    await env.refuse_evictions(GUARDED)
    for name in env.nodes:
        await env.add_workload(name, "train", GUARDED if name in guarded else {})
        await env.add_workload(name, "web", gpu=False)
    env.govern(POLICY)
    await env.live_once()
    async with env.life(), env.operator(config):
        await until_async(lambda: env.all_in(S.DONE))
    await env.publish_driver()
    followers = DynamicCaches(env.client, Node)
    watch = Watch(followers.follow("nodes"), env.nodes)
    expected = (
        dict.fromkeys(skipped, S.REQUIRED)
        | dict.fromkeys(guarded, S.FAILED)
        | dict.fromkeys((*cordoned, *checked, *plain), S.DONE)
    )

    async def over() -> bool:
        return await env.states() == expected

    async with env.life(), _beside(followers), FaultProxy.before(config) as proxy:
        # Every fourth write is carried out, but its answer never arrives.
        proxy.plant(Fault(when=_every_fourth_write(), times=math.inf, lose_answer=True))
        for _ in range(6):
            async with env.operator(proxy.config, orderly=False) as (runtime, _upgrades):
                count = writes(runtime)
                await until(lambda count=count: count() >= 12, within=60)  # type: ignore[misc]
        async with env.operator(config) as (runtime, upgrades):
            await until_async(over, within=120, saying="not all nodes have come to their end")
            await until(lambda: _numbers(upgrades) == (20, 16, 2, 2), saying="the report does not say so")
            report = upgrades.report("")
            await _stays_quiet(runtime, env)
    assert 1 <= watch.most <= 4
    assert report is not None
    assert {trouble.node for trouble in report.failed_nodes} == set(guarded)
    assert "did not leave in 12 s" in report.failed_nodes[0].message
    pods = await env.pods()
    for name in env.nodes:
        node = await env.node(name)
        touched = name not in (*skipped, *guarded)
        assert (f"train-{name}" in pods) is not touched, name
        assert f"web-{name}" in pods, name
        driver = pods[f"driver-{name}"].metadata.labels["controller-revision-hash"]
        assert driver == ("2" if touched else "1"), name
        assert node.spec.unschedulable is (name in (*cordoned, *guarded)), name
        assert NodeLabel.AGENT not in node.metadata.labels, name
        assert (NodeAnnotation.FAILURE in node.metadata.annotations) is (name in guarded), name


async def test_an_upgrade_goes_on_when_a_disruption_budget_allows_it(env: UpgradeEnv, api_server: Cluster) -> None:
    name = await env.add_node("one")
    await env.publish_driver()
    await env.refuse_evictions(GUARDED)
    await env.live_once()
    await env.publish_driver()
    await env.add_workload(name, "train", GUARDED)
    env.govern(UpgradePolicy(auto_upgrade=True, max_unavailable="100%"))
    async with env.life(), env.operator(load_config(api_server.kubeconfig)):
        await until_async(lambda: env.all_in(S.POD_DELETION_REQUIRED))
        await until_async(lambda: _has_event(env, name, "was not evicted"))
        assert f"train-{name}" in await env.pods()
        await env.allow_disruptions(1)
        await until_async(lambda: env.all_in(S.DONE))
        await until_async(lambda: _has_event(env, name, "The driver is upgraded"))
    assert not (await env.node(name)).spec.unschedulable


async def test_a_node_that_failed_is_tried_again_with_another_driver(env: UpgradeEnv, api_server: Cluster) -> None:
    name = await env.add_node("one")
    await env.publish_driver()
    await env.refuse_evictions(GUARDED)
    await env.live_once()
    await env.publish_driver()
    await env.add_workload(name, "train", GUARDED)
    # Long enough for a pod that may go.
    env.govern(UpgradePolicy(auto_upgrade=True, max_unavailable="100%", pod_deletion=PodDeletion(timeout_seconds=10)))
    async with env.life(), env.operator(load_config(api_server.kubeconfig)):
        await until_async(lambda: env.all_in(S.FAILED))
        assert "disruption budget" in (await env.node(name)).metadata.annotations[NodeAnnotation.FAILURE]
        await env.allow_disruptions(1)
        await env.publish_driver()
        await until_async(lambda: env.all_in(S.DONE))
    assert not (await env.node(name)).spec.unschedulable
    assert (await env.pods())[f"driver-{name}"].metadata.labels["controller-revision-hash"] == "3"


async def test_an_unreadable_policy_leaves_nodes_as_they_are(env: UpgradeEnv, api_server: Cluster) -> None:
    name = await env.add_node("one")
    await env.publish_driver()
    await env.live_once()
    await env.publish_driver()
    env.stuck.add(name)
    env.govern(UpgradePolicy(auto_upgrade=True, max_unavailable="100%"))
    async with env.life(), env.operator(load_config(api_server.kubeconfig)) as (runtime, _upgrades):
        await until_async(lambda: _is_in(env, name, S.POD_RESTART_REQUIRED))

        async def driver(*, ready: bool) -> bool:
            pod = (await env.pods()).get(f"driver-{name}")
            return (
                pod is not None
                and pod.metadata.labels["controller-revision-hash"] == "2"
                and pod.containers_ready is ready
            )

        await until_async(lambda: driver(ready=False))
        env.policies.groups = (UpgradeGroup("", None, frozenset(env.nodes), unreadable=True),)
        env.policies.changed.fire()
        env.stuck.clear()
        await until_async(lambda: driver(ready=True))
        count = writes(runtime)
        await until_still(lambda: int(count()))
        assert (await env.states())[name] is S.POD_RESTART_REQUIRED
        env.govern(UpgradePolicy(auto_upgrade=True, max_unavailable="100%"))
        env.policies.changed.fire()
        await until_async(lambda: env.all_in(S.DONE))


async def test_switching_off_undoes_the_upgrade(env: UpgradeEnv, api_server: Cluster) -> None:
    under_way, waiting = await env.add_node("a"), await env.add_node("b")
    await env.publish_driver()
    await env.live_once()
    await env.publish_driver()
    env.stuck.add(under_way)
    env.govern(UpgradePolicy(auto_upgrade=True, max_unavailable="100%"))
    async with env.life(), env.operator(load_config(api_server.kubeconfig)) as (_runtime, upgrades):
        await until_async(lambda: _is_in(env, under_way, S.POD_RESTART_REQUIRED))
        assert (await env.node(under_way)).spec.unschedulable
        env.govern(UpgradePolicy(auto_upgrade=False))
        env.policies.changed.fire()
        await until_async(lambda: env.all_in(S.NONE))
        await until(lambda: upgrades.report("") is None)
    for name in (under_way, waiting):
        node = await env.node(name)
        assert not node.spec.unschedulable
        assert not [key for key in node.metadata.annotations if "driver-upgrade" in key]


@pytest.mark.parametrize(("grace", "kept"), [(3600.0, True), (0.1, False)], ids=["for a moment", "for good"])
async def test_the_upgrade_of_a_node_in_no_group_is_switched_off_only_if_that_lasts(
    env: UpgradeEnv, api_server: Cluster, grace: float, kept: bool
) -> None:
    """As when another owner takes over, or a label is gone that is about to come back."""
    timing = UpgradeTiming(limits=UpgradeLimits(policy_change_grace_period=timedelta(seconds=grace)))
    name = await env.add_node("one")
    await env.publish_driver()
    await env.live_once()
    await env.publish_driver()
    env.stuck.add(name)
    policy = UpgradePolicy(auto_upgrade=True, max_unavailable="100%")
    env.govern(policy)
    async with env.life(), env.operator(load_config(api_server.kubeconfig), timing=timing) as (runtime, upgrades):
        await until_async(lambda: _is_in(env, name, S.POD_RESTART_REQUIRED))
        started = (await env.node(name)).metadata.annotations[NodeAnnotation.STARTED]
        env.policies.groups = (UpgradeGroup("another", policy, frozenset()),)
        env.policies.changed.fire()
        if not kept:
            await until_async(lambda: env.all_in(S.NONE))
            assert not (await env.node(name)).spec.unschedulable
            return
        await until(lambda: upgrades.report("another") is not None)
        count = writes(runtime)
        await until_still(lambda: int(count()))
        env.stuck.clear()
        env.govern(policy)
        env.policies.changed.fire()
        await until_async(lambda: env.all_in(S.DONE))
    assert (await env.node(name)).metadata.annotations[NodeAnnotation.STARTED] == started


async def test_nothing_is_written_while_nvidias_operator_is_active(env: UpgradeEnv, api_server: Cluster) -> None:
    await env.add_node("a")
    await env.publish_driver()
    await env.live_once()
    env.govern(POLICY)
    env.policies.writing = False
    async with env.operator(load_config(api_server.kubeconfig)) as (runtime, upgrades):
        await until(lambda: upgrades.report("") is not None)
        assert writes(runtime)() == 0
        env.policies.writing = True
        env.policies.changed.fire()
        await until_async(lambda: env.all_in(S.DONE))


async def test_a_driver_pod_that_has_changed_since_it_was_read_is_looked_at_again(
    env: UpgradeEnv, api_server: Cluster
) -> None:
    name = await env.add_node("one")
    await env.publish_driver()
    await env.live_once()
    await env.publish_driver()
    before = (await env.pods())[f"driver-{name}"]
    env.govern(POLICY)

    async def adopt(request: Request) -> None:
        """Just before the pod is deleted it turns out to be of the newest template."""
        if request.method == "DELETE" and request.path.endswith(f"/pods/driver-{name}"):
            newest = {"metadata": {"labels": {"controller-revision-hash": "2"}}}
            await env.client.patch(Pod, f"driver-{name}", newest, namespace=env.namespace)

    async with FaultProxy.before(load_config(api_server.kubeconfig)) as proxy:
        proxy.on_request = adopt
        async with env.life(), env.operator(proxy.config):
            await until_async(lambda: env.all_in(S.DONE))
        refused = [code for request, code in proxy.answers if request.method == "DELETE" and "/pods/" in request.path]
    assert refused == [409]
    assert (await env.pods())[f"driver-{name}"].metadata.uid == before.metadata.uid


async def test_an_upgrade_that_nvidias_operator_began_goes_on(env: UpgradeEnv, api_server: Cluster) -> None:
    """Labels and annotations as NVIDIA's operator leaves them when it goes in the middle."""
    name = await env.add_node("a", {NodeLabel.UPGRADE_STATE: S.POD_DELETION_REQUIRED.value})
    await env.client.patch(Node, name, {"spec": {"unschedulable": True}})
    await env.publish_driver()
    await env.live_once()
    await env.publish_driver()
    await env.add_workload(name, "train")
    env.govern(POLICY)
    async with env.life(), env.operator(load_config(api_server.kubeconfig)):
        await until_async(lambda: env.all_in(S.DONE))
    pods = await env.pods()
    assert f"train-{name}" not in pods
    assert pods[f"driver-{name}"].metadata.labels["controller-revision-hash"] == "2"
    assert state_of(await env.node(name)) is S.DONE
    assert not (await env.node(name)).spec.unschedulable


@pytest.mark.parametrize("state", [S.POD_DELETION_REQUIRED, S.DRAIN_REQUIRED, S.POD_RESTART_REQUIRED])
async def test_a_step_goes_on_although_no_operator_was_there_for_longer_than_its_limit(
    env: UpgradeEnv, api_server: Cluster, state: UpgradeState
) -> None:
    name = await env.add_node("one", {NodeLabel.UPGRADE_STATE: state.value}, cordoned=True)
    long_ago = str(int(time.time()) - 86400)
    times = {str(key): long_ago for key in (NodeAnnotation.STARTED, NodeAnnotation.STEP_SINCE)}
    await env.client.patch(Node, name, {"metadata": {"annotations": times}})
    await env.publish_driver()
    await env.live_once()
    await env.publish_driver()
    if state is not S.POD_RESTART_REQUIRED:
        await env.add_workload(name, "train")
    env.govern(UpgradePolicy(auto_upgrade=True, drain=Drain(enable=True)))
    async with env.life(), env.operator(load_config(api_server.kubeconfig)):
        await until_async(lambda: env.all_in(S.DONE, S.FAILED))
    node = await env.node(name)
    assert state_of(node) is S.DONE, node.metadata.annotations
    assert NodeAnnotation.RENEWALS not in node.metadata.annotations
    assert f"train-{name}" not in await env.pods()


async def test_no_pod_is_evicted_if_its_node_has_changed_state_while_pods_were_listed(
    env: UpgradeEnv, api_server: Cluster
) -> None:
    """The view of a node may be outdated when the list of its pods arrives, with pods that came since."""
    name = await env.add_node("one", {NodeLabel.UPGRADE_STATE: S.POD_DELETION_REQUIRED.value}, cordoned=True)
    since = {str(NodeAnnotation.STEP_SINCE): str(int(time.time()))}
    await env.client.patch(Node, name, {"metadata": {"annotations": since}})
    await env.publish_driver()
    await env.live_once()
    env.govern(UpgradePolicy(auto_upgrade=True))

    async def move_on(request: Request) -> None:
        if request.query.get("fieldSelector") == f"spec.nodeName={name}" and not moved.is_set():
            moved.set()
            labels = {str(NodeLabel.UPGRADE_STATE): S.DONE.value}
            await env.client.patch(Node, name, {"metadata": {"labels": labels}, "spec": {"unschedulable": None}})
            await env.add_workload(name, "train")

    moved = asyncio.Event()
    async with FaultProxy.before(load_config(api_server.kubeconfig)) as proxy:
        proxy.on_request = move_on
        async with env.operator(proxy.config) as (runtime, _upgrades):
            await until(moved.is_set)
            asked = ("GET", f"/api/v1/nodes/{name}")
            await until(lambda: asked in {(request.method, request.path) for request, _code in proxy.answers})
            count = writes(runtime)
            await until_still(lambda: int(count()))
        assert not [request for request in proxy.writes if request.path.endswith("/eviction")]
    assert not (await env.pods())[f"train-{name}"].deleting


async def test_a_process_that_leads_again_loads_the_starts_anew(env: UpgradeEnv, api_server: Cluster) -> None:
    await env.add_node("one", {NodeLabel.UPGRADE_STATE: S.DONE.value})
    await env.publish_driver()
    await env.live_once()
    env.govern(POLICY)

    def questions() -> int:
        return sum(str(NodeLabel.UPGRADE_STATE) in request.query.get("labelSelector", "") for request in proxy.requests)

    config = load_config(api_server.kubeconfig)
    async with FaultProxy.before(config) as proxy, env.operator(proxy.config, elect=True):
        await until(questions)
        asked = questions()
        await env.client.delete(Lease, LEASE, env.namespace)
        await until(lambda: questions() > asked, saying="it trusts what it knew before")


async def test_a_slow_api_server_does_not_make_starts_rare(env: UpgradeEnv, api_server: Cluster) -> None:
    """The clock moves only during requests: looking at nodes takes no time, so the next look is not put off."""
    await env.add_node("one", {NodeLabel.UPGRADE_STATE: S.DONE.value})
    await env.publish_driver()
    await env.live_once()
    env.govern(POLICY)
    passed = 0.0

    async def take_long(request: Request) -> None:
        nonlocal passed
        if str(NodeLabel.UPGRADE_STATE) in request.query.get("labelSelector", ""):
            passed += 100.0

    timing = UpgradeTiming(clock=lambda: passed)
    async with FaultProxy.before(load_config(api_server.kubeconfig)) as proxy:
        proxy.on_request = take_long
        async with env.operator(proxy.config, timing=timing) as (_runtime, upgrades):
            await until(lambda: upgrades.report("") is not None)
            assert upgrades.scheduler.next_look <= passed + 1.0


async def _has_event(env: UpgradeEnv, node: str, words: str) -> bool:
    """Whether an Event of the node contains these words."""
    found = await env.client.list(Event, Selection("default", fields=f"reason={StackEvent.DRIVER_UPGRADE}"))
    return any(event.regarding and event.regarding.name == node and words in event.note for event in found)


async def _is_in(env: UpgradeEnv, node: str, state: UpgradeState) -> bool:
    return (await env.states())[node] is state


def _numbers(upgrades: UpgradeController) -> tuple[int, int, int, int] | None:
    found = upgrades.report("")
    return (found.total, found.done, found.failed, found.skipped) if found is not None else None


def _every_fourth_write() -> Callable[[Request], bool]:
    seen = itertools.count(1)
    return lambda request: request.is_write and "/events" not in request.path and next(seen) % 4 == 0


async def _stays_quiet(runtime: Runtime, env: UpgradeEnv) -> None:
    """Nothing is written again when the groups are read anew."""
    count, looks = writes(runtime), reconciles(runtime)
    await until_still(lambda: int(count()))
    before, looked = count(), looks()
    env.policies.changed.fire()
    await until(lambda: looks() > looked)
    assert count() == before


@asynccontextmanager
async def _beside(followers: DynamicCaches[Node]) -> AsyncIterator[None]:
    task = asyncio.create_task(followers.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
