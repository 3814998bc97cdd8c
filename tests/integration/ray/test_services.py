"""RayServices on a real API server: clusters take over from each other, and whoever asks is answered."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fault_proxy import Fault, Request
from gpu_control_plane.api.ray.service import ServiceCondition
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client
from gpu_control_plane.ray.owned import OwnedService
from integration.bootstrap.operands import allow_pods
from integration.ray.service_env import CONFIG, ServiceEnv, service_env
from waiting import until_async

UP_TO_DATE = ServiceCondition.UP_TO_DATE.value


@pytest.fixture
async def env(client: Client, namespace: str) -> AsyncIterator[ServiceEnv]:
    """Both controllers of Ray run."""
    await install(client)
    await allow_pods(client, namespace)
    async with service_env(client, namespace) as made:
        await made.start_operator()
        yield made


async def test_it_comes_up(env: ServiceEnv) -> None:
    await env.create(env.group(2))
    active = await env.settled()
    status, services = await env.status(), await env.services()
    assert set(services) == {"svc-serve-svc", "svc-head-svc"}
    assert services["svc-serve-svc"].spec["selector"] == {"ray.io/cluster": active, "ray.io/serve": "true"}
    assert services["svc-head-svc"].spec["selector"]["ray.io/cluster"] == active
    assert status.num_serve_endpoints == 3
    assert status.active_service_status is not None
    assert status.active_service_status.application_statuses["a"].status == "RUNNING"
    assert [put["applications"][0]["name"] for put in env.dashboard(active).serve_configs] == ["a"]


async def test_a_changed_cluster_takes_over_when_it_answers_and_the_address_stays(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    old = await env.settled()
    address = (await env.services())["svc-serve-svc"].spec["clusterIP"]
    env.life.pods.starts = lambda pod: not pod.cluster or pod.cluster == old
    await env.upgrade(env.group(1, image="ray:2"), image="ray:2")
    await until_async(env.pending, within=10)
    condition = await env.condition("UpgradeInProgress")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "BothActivePendingClustersExist")
    assert await env.backend() == old
    env.life.pods.starts = lambda _pod: True
    env.life.pods.look_again()
    new = await env.settled("ray:2")
    assert new != old
    assert (await env.services())["svc-serve-svc"].spec["clusterIP"] == address


async def test_ports_and_the_type_of_the_heads_service_change_with_the_cluster(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    await env.settled()
    address = (await env.services())["svc-serve-svc"].spec["clusterIP"]
    config = env.cluster_config(env.group(1, image="ray:2"), image="ray:2")
    head = config["headGroupSpec"]
    head["serviceType"] = "NodePort"
    ports = [{"name": "serve", "containerPort": 9000}, {"name": "dashboard", "containerPort": 8265}]
    head["template"]["spec"]["containers"][0]["ports"] = ports
    await env.change(rayClusterConfig=config)
    await env.settled("ray:2", within=40)
    services = await env.services()
    assert [port["port"] for port in services["svc-serve-svc"].spec["ports"]] == [9000]
    assert services["svc-serve-svc"].spec["clusterIP"] == address
    assert services["svc-head-svc"].spec["type"] == "NodePort"


async def test_a_service_of_somebody_else_is_left_alone_and_named(env: ServiceEnv) -> None:
    spec = {"selector": {"app": "theirs"}, "ports": [{"name": "serve", "port": 80}]}
    theirs = await env.client.create(OwnedService, {"metadata": {"name": "mine"}, "spec": spec}, env.namespace)
    await env.create(env.group(1), serveService={"metadata": {"name": "mine"}})

    async def said() -> bool:
        found = [await env.condition(kind) for kind in (UP_TO_DATE, "Ready")]
        return all(each is not None and "Service mine" in each.message for each in found)

    await until_async(said, within=20)
    condition = await env.condition(UP_TO_DATE)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "ServiceNotWritten")
    held = await env.client.get(OwnedService, "mine", env.namespace)
    assert held.metadata.resource_version == theirs.metadata.resource_version
    await env.client.delete(OwnedService, "mine", env.namespace)

    async def up() -> bool:
        found = await env.condition(UP_TO_DATE)
        return found is not None and found.status == "True" and (await env.status()).service_status == "Running"

    await until_async(up, within=40)


async def test_changed_again_in_the_middle_of_an_upgrade_the_last_one_wins(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    old = await env.settled()
    env.life.pods.starts = lambda pod: pod.cluster == old
    await env.upgrade(env.group(1, image="ray:2"), image="ray:2")
    await until_async(env.pending, within=10)
    second = await env.pending()
    await env.upgrade(env.group(1, image="ray:3"), image="ray:3")

    async def replaced() -> bool:
        return await env.pending() not in ("", second) and second not in await env.clusters()

    await until_async(replaced, within=10)
    assert await env.backend() == old
    env.life.pods.starts = lambda _pod: True
    env.life.pods.look_again()
    await env.settled("ray:3")


async def test_a_change_that_is_taken_back_leaves_the_cluster_that_was_there(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    old = await env.settled()
    env.life.pods.starts = lambda pod: pod.cluster == old
    await env.upgrade(env.group(1, image="ray:2"), image="ray:2")
    await until_async(env.pending, within=10)
    await env.upgrade(env.group(1), image="ray:1")
    assert await env.settled() == old


async def test_a_changed_serve_configuration_is_put_in_place(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    active = await env.settled()
    await env.change(serveConfigV2=CONFIG.replace("one", "two"))

    async def told() -> bool:
        configs = env.dashboard(active).serve_configs
        return "two" in str(configs[-1])

    await until_async(told, within=10)
    assert await env.settled() == active
    assert len(env.dashboard(active).serve_configs) == 2


async def test_an_operator_that_starts_anew_writes_nothing_and_tells_ray_nothing(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    active = await env.settled()
    await env.stop_operator()
    puts, writes = len(env.dashboard(active).serve_configs), len(env.proxy.writes)
    asked = len(env.dashboard(active).requests)
    await env.start_operator()

    async def asked_again() -> bool:
        return len(env.dashboard(active).requests) > asked + 6

    await until_async(asked_again, within=10)
    assert len(env.dashboard(active).serve_configs) == puts
    assert [request.path for request in env.proxy.writes[writes:] if "/events" not in request.path] == []


async def test_a_full_pool_is_handed_over_worker_by_worker(env: ServiceEnv) -> None:
    await env.add_pool(3)
    # Only workers answer: a head would for all of them.
    await env.create(env.group(3, gpus=1), excludeHeadPodFromServeSvc=True)
    old = await env.settled(replicas=3)
    await env.upgrade(env.group(3, gpus=1, image="ray:2"), image="ray:2")
    most, answered = 0, True

    async def look() -> bool:
        nonlocal most, answered
        pods = [pod for pod in await env.pods() if env.life.units(pod) and not pod.deleting]
        most = max(most, len(pods))
        answered = answered and (await env.status()).num_serve_endpoints > 0
        return await env.is_settled("ray:2", replicas=3)

    await until_async(look, within=60)
    assert most <= 3
    assert answered
    assert old not in await env.clusters()
    assert "UpgradeByHandover" in await env.events()


async def test_a_handover_of_the_only_worker_says_before_that_there_is_a_gap(env: ServiceEnv) -> None:
    await env.add_pool(1)
    await env.create(env.group(1, gpus=1))
    await env.settled(replicas=1)
    await env.upgrade(env.group(1, gpus=1, image="ray:2"), image="ray:2")
    await env.settled("ray:2", replicas=1, within=40)
    events = await env.events()
    assert "requests are not answered" in events["UpgradeWithGap"]


async def test_an_incremental_upgrade_moves_requests_step_by_step(env: ServiceEnv) -> None:
    await env.add_gateway_api()
    options = {"stepSizePercent": 50, "intervalSeconds": 1, "maxSurgePercent": 50, "gatewayClassName": "g"}
    strategy = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options}
    scaled = {"enableInTreeAutoscaling": True}
    await env.create(env.group(1, minReplicas=1), cluster=scaled, upgradeStrategy=strategy)
    old = await env.settled()

    async def routed() -> bool:
        return await env.route() == {old: 100}

    await until_async(routed, within=10)
    assert f"{old}-serve-svc" in {service.name for service in await env.all_services()}
    await env.accept_gateway()
    config = env.cluster_config(env.group(1, minReplicas=1, image="ray:2"), image="ray:2")
    await env.change(rayClusterConfig={**config, **scaled})
    seen: list[tuple[int, int]] = []

    async def look() -> bool:
        route, new = await env.route(), await env.pending()
        step = route.get(old, 0), route.get(new, 0)
        if new and step not in seen:
            seen.append(step)
        return await env.is_settled("ray:2")

    await until_async(look, within=30)
    assert [step for step in seen if 0 not in step] == [(50, 50)]
    new = await env.active()
    assert await env.route() == {new: 100}
    capacities = [config.get("target_capacity") for config in env.dashboard(new).serve_configs]
    assert capacities == [0, 50, 100]
    assert [config.get("target_capacity") for config in env.dashboard(old).serve_configs] == [100, 50]


async def test_suspended_it_has_nothing_and_resumed_it_answers(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    await env.settled()
    await env.change(suspend=True)

    async def suspended() -> bool:
        condition = await env.condition("Suspended")
        return condition is not None and condition.status == "True"

    await until_async(suspended, within=10)
    assert not await env.clusters()
    assert not await env.services()
    await env.change(suspend=False)
    await env.settled()
    condition = await env.condition("Suspended")
    assert condition is not None
    assert condition.reason == "RayServiceResumed"


async def test_a_spec_that_cannot_be_is_said_and_can_be_corrected(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    active = await env.settled()
    await env.change(serveConfigV2="{")

    async def refused() -> bool:
        condition = await env.condition("Ready")
        return condition is not None and condition.reason == "ValidationFailed"

    await until_async(refused, within=10)
    await env.change(serveConfigV2=CONFIG)
    assert await env.settled() == active


class WriteKiller:
    """Ends the operator at every single write: before it reaches the server, and the next one right after it landed."""

    def __init__(self, env: ServiceEnv) -> None:
        self._env = env
        self._before = True
        self._dying = False
        self.kills = 0
        env.proxy.on_request = self._on_request
        env.proxy.on_answer = self._on_answer

    async def _on_request(self, request: Request) -> None:
        if not request.is_write or "/events" in request.path:
            return
        if self._dying:
            raise asyncio.CancelledError
        self._dying = self._before
        if self._before:
            raise asyncio.CancelledError

    async def _on_answer(self, request: Request) -> None:
        if request.is_write and "/events" not in request.path:
            self._dying = True

    async def restart(self) -> None:
        """Another process takes the place of one that was ended; it gets one write further."""
        if self._dying:
            await self._env.stop_operator()
            self.kills += 1
            self._before = not self._before
            self._dying = False
            await self._env.start_operator()


async def test_ended_at_every_write_of_a_handover_it_goes_on_rightly(env: ServiceEnv) -> None:
    await env.add_pool(2)
    await env.create(env.group(2, gpus=1))
    await env.settled(replicas=2)
    killer = WriteKiller(env)
    await env.upgrade(env.group(2, gpus=1, image="ray:2"), image="ray:2")
    most = 0

    async def look() -> bool:
        nonlocal most
        await killer.restart()
        most = max(most, len([pod for pod in await env.pods() if env.life.units(pod) and not pod.deleting]))
        return await env.is_settled("ray:2", replicas=2)

    await until_async(look, within=90)
    assert most <= 2
    assert killer.kills >= 20
    configs = env.dashboard(await env.active()).serve_configs
    assert all(config == configs[0] for config in configs), "Ray Serve keeps what is put again unchanged"


async def test_ended_at_every_write_of_an_upgrade_it_goes_on_rightly(env: ServiceEnv) -> None:
    await env.create(env.group(1))
    killer = WriteKiller(env)
    seen: set[str] = set()

    async def look() -> bool:
        await killer.restart()
        seen.update(await env.clusters())
        return await env.is_settled("ray:1")

    await until_async(look, within=60)
    await env.upgrade(env.group(1, image="ray:2"), image="ray:2")

    async def look_again() -> bool:
        await killer.restart()
        seen.update(await env.clusters())
        return await env.is_settled("ray:2")

    await until_async(look_again, within=60)
    assert len(seen) == 2
    assert killer.kills >= 20


@pytest.mark.parametrize(
    ("method", "part", "reason"),
    [
        ("PATCH", "/pods/", "FailedToUpdateHeadPodServeLabel"),
        ("DELETE", "/rayclusters/", "FailedToDeleteRayCluster"),
    ],
)
async def test_a_write_that_is_refused_is_told(env: ServiceEnv, method: str, part: str, reason: str) -> None:
    env.proxy.plant(Fault(when=lambda r: r.method == method and part in r.path, times=1, status=403))
    await env.create(env.group(1))
    await env.settled()
    await env.upgrade(env.group(1, image="ray:2"), image="ray:2")
    await env.settled("ray:2")

    async def told() -> bool:
        return "a planted fault" in (await env.events()).get(reason, "")

    await until_async(told, within=10)
