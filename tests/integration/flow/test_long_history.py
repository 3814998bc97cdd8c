"""One long random history on a real control plane. People, tenants and hardware do what they like and replicas of the
controller with its webhooks are killed; no unit is issued twice, none is used without access, and all sums are right.

The seed is printed with every failure; `--seed` plays the same steps again, `--steps` says how many there are.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.agent.fleet.machines import edit_card
from gpu_control_plane.agent.simulated.machine import heal, report_xid
from gpu_control_plane.api import GPUDevice, GPUNodeState, GPUPool, PoolPhase
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.installation.webhooks import install as install_webhooks
from gpu_control_plane.kube import Cache, Selection
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.watch import ApiSource
from gpu_control_plane.local.ports import LOOPBACK
from integration.flow.env import FlowEnv, pool_of
from integration.flow.replicas import Replicas, replicas_of
from integration.flow.test_real_histories import InvariantWatch, watching
from integration.kinds import Pod
from integration.rbac import ServiceAccount
from integration.tenant import Tenant, tenant
from waiting import until_async

TENANTS = 3
POOLS = ("one", "two")
NODES = {"node-a": "H200-141", "node-b": "H200-141", "node-c": "L40S"}
CARDS = tuple(f"{node}-0000-{bus}-00-0" for node in NODES for bus in ("18", "2a"))
SLICES = 3
ALLOCATIONS: tuple[dict[str, object], ...] = (
    {"mode": "Exclusive"},
    {"mode": "TimeSlice", "timeSlice": {"replicas": SLICES}},
    {"mode": "MIG", "mig": {"profile": "1g.18gb"}},
)
MOST_UNITS = {Mode.EXCLUSIVE: 1, Mode.TIME_SLICE: SLICES, Mode.MIG: 7}

MOST_SECONDS_BETWEEN_STEPS = 0.1
RESTART = 0.1
"""The chance at every step that dead replicas are started again."""

NO_ACCESS = " admits neither the namespace "
OTHER_REFUSALS = ("exceeded quota: gpu-pool-", "is in maintenance", "no node has more than", "which no GPU pool offers")


class Violations(InvariantWatch):
    """Looks at every change that the API server shows."""

    def __init__(self) -> None:
        super().__init__()
        self._modes: dict[str, list[Mode]] = {}
        """How each card was ordered to be divided since it was last free, and what was in force then. A pod may get a
        unit of the old division just before the node reads its new order, which then waits for that pod."""

    def device(self, old: GPUDevice | None, new: GPUDevice | None) -> None:
        super().device(old, new)
        if new is None:
            return
        modes = self._modes.get(new.name, [])
        if not new.status.used_by:
            del modes[:-2]
            return
        if len({user.resource for user in new.status.used_by}) > 1:
            self.broken.append(f"{new.name} is used under two names: {new.status.used_by}")
        units = sum(user.units for user in new.status.used_by)
        if modes and units > max(MOST_UNITS[mode] for mode in modes):
            self.broken.append(f"{new.name}, divided as {modes}, has {new.status.used_by}")

    def state(self, old: GPUNodeState | None, new: GPUNodeState | None) -> None:
        super().state(old, new)
        for order in new.spec.assignments if new is not None else ():
            modes = self._modes.setdefault(order.inventory_id, [])
            if modes[-1:] != [order.allocation.mode]:
                modes.append(order.allocation.mode)

    def pool(self, _old: GPUPool | None, new: GPUPool | None) -> None:
        for each in new.status.capacity if new is not None else ():
            if each.used + each.reserved + each.available + each.faulted > each.total:
                self.broken.append(f"the units of {each.name} do not add up: {each}")


class History:
    """What has happened, and what must hold after it."""

    def __init__(self, env: FlowEnv, tenants: list[Tenant], replicas: Replicas, rng: random.Random) -> None:
        self._env = env
        self._tenants = tenants
        self._namespaces = [tenant.namespace for tenant in tenants]
        self._replicas = replicas
        self._rng = rng
        self._pods: dict[str, str] = {}
        """Pods that were created, and their namespaces."""
        self._admitted: dict[str, set[str]] = {pool: set(self._namespaces) for pool in POOLS}
        self._unsettled = set(POOLS)
        """Pools whose access was changed and has not been seen to hold yet."""
        self.outcomes: Counter[str] = Counter()
        self.broken: list[str] = []
        self._count = 0

    async def step(self) -> None:
        """Do one thing at random, and leave the others a moment to act on it."""
        await asyncio.sleep(self._rng.uniform(0, MOST_SECONDS_BETWEEN_STEPS))
        self._count += 1
        if self._replicas.dead and self._rng.random() < RESTART:
            await self._replicas.start_all()
        actions: dict[Callable[[], Awaitable[None]], int] = {
            self._create_pod: 40,
            self._end_pod: 32,
            self._approve: 8,
            self._break_or_mend: 6,
            self._change_access: 5,
            self._change_quotas: 3,
            self._change_allocation: 3,
            self._kill: 1,
        }
        (action,) = self._rng.choices(list(actions), weights=list(actions.values()))
        await action()

    async def settle(self) -> None:
        """Give every card to a pool, end everything that runs, and wait until all is as it should be."""
        await self._replicas.start_all()
        for name in [*self._pods]:
            await self._end(name)
        for number, card in enumerate(CARDS):
            await edit_card(self._env.client, card, heal)
            await self._env.approve(card, POOLS[number % len(POOLS)])
        for pool in POOLS:
            await self._patch(pool, allocation={"mode": "Exclusive", "mig": None, "timeSlice": None})
        await until_async(self._is_settled, within=180, saying="everything is free and counted")

    async def _is_settled(self) -> bool:
        pools = [await self._env.pool(name) for name in POOLS]
        devices = (await self._env.devices()).values()
        return all(pool_of(device) and not device.status.used_by for device in devices) and all(
            pool.status.phase is PoolPhase.READY
            and pool.status.units is not None
            and pool.status.units.available == pool.status.units.total == len(CARDS) // len(POOLS)
            for pool in pools
        )

    async def _create_pod(self) -> None:
        pool, tenant = self._rng.choice(POOLS), self._rng.choice(self._tenants)
        namespace = tenant.namespace
        if pool in self._unsettled and await self._holds(pool):
            self._unsettled.discard(pool)
        known = pool not in self._unsettled
        body = pod(f"pod-{self._count}", pool, self._rng.choice((1, 1, 1, 2)))
        admitted = namespace in self._admitted[pool]
        try:
            await tenant.client.create(Pod, body, namespace)
        except Forbidden as error:
            refusal = next((text for text in (NO_ACCESS, *OTHER_REFUSALS) if text in error.message), None)
            self.outcomes[refusal or error.message] += 1
            if refusal is None or (refusal is NO_ACCESS and admitted and known):
                self.broken.append(f"{namespace} was refused {pool}: {error.message}")
            return
        self.outcomes["created"] += 1
        self._pods[f"pod-{self._count}"] = namespace
        if known and not admitted:
            self.broken.append(f"{namespace} was admitted to {pool}, which names {self._admitted[pool]}")

    async def _holds(self, pool: str) -> bool:
        """Whether the API server judges by the access that the pool has now."""
        for each in self._tenants:
            try:
                await each.client.try_create(Pod, pod("probe", pool, 1), each.namespace)
                refused = False
            except Forbidden as error:
                refused = NO_ACCESS in error.message or "which no GPU pool offers" in error.message
            if refused == (each.namespace in self._admitted[pool]):
                return False
        return True

    async def _end_pod(self) -> None:
        if self._pods:
            await self._end(self._rng.choice(sorted(self._pods)))

    async def _end(self, name: str) -> None:
        with suppress(NotFound):  # the kubelet's refusal ends a pod as well
            await self._env.client.delete(Pod, name, self._pods.pop(name))

    async def _approve(self) -> None:
        await self._env.approve(self._rng.choice(CARDS), self._rng.choice((*POOLS, *POOLS, None)))

    async def _break_or_mend(self) -> None:
        card = self._rng.choice(CARDS)
        if self._rng.random() < 0.4:
            await edit_card(self._env.client, card, lambda machine, address: report_xid(machine, address, 79))
        else:
            await edit_card(self._env.client, card, heal)

    async def _change_access(self) -> None:
        pool = self._rng.choice(POOLS)
        self._unsettled.add(pool)
        self._admitted[pool] = {name for name in self._namespaces if self._rng.random() < 0.7}
        names = sorted(self._admitted[pool])
        by_label = self._rng.random() < 0.5
        selector = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]}
        access: dict[str, Any] = {"namespaces": None if by_label else names, "namespaceSelector": None}
        if by_label and names:
            access["namespaceSelector"] = selector
        await self._patch(pool, access=access)

    async def _change_quotas(self) -> None:
        limits = [{"namespace": name, "units": self._rng.randint(0, 4)} for name in self._namespaces]
        await self._patch(self._rng.choice(POOLS), quotas=limits[: self._rng.randint(0, len(limits))])

    async def _change_allocation(self) -> None:
        chosen = self._rng.choice(ALLOCATIONS)
        strategy = self._rng.choice(("Pool", "Node"))
        await self._patch(
            self._rng.choice(POOLS),
            allocation={"mig": None, "timeSlice": None, **chosen},
            maintenance={"strategy": strategy},
        )

    async def _kill(self) -> None:
        if self._rng.random() < 0.25:
            await self._replicas.kill_all()
        else:
            await self._replicas.kill(self._rng.randrange(len(self._replicas)))

    async def _patch(self, pool: str, **spec: object) -> None:
        await self._env.client.patch(GPUPool, pool, {"spec": spec})


def pod(name: str, pool: str, units: int) -> dict[str, Any]:
    limits = {f"gpu.deckhouse.io/{pool}": str(units)}
    container = {"name": "main", "image": "any", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


@pytest.fixture
async def replicas(env: FlowEnv) -> AsyncIterator[Replicas]:
    """Two of them, with webhooks behind one address."""
    async with replicas_of(env, 2) as made:
        await install_webhooks(env.client, f"https://{LOOPBACK}:{made.port}")
        await env.webhooks_trusted()
        yield made


@pytest.fixture
async def tenants(env: FlowEnv, tmp_path: Path) -> AsyncIterator[list[Tenant]]:
    """Each may edit a namespace and nothing else, so that only the namespace's access admits the pods."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(tenant(env.client, env.cluster.kubeconfig, tmp_path))
            for _ in range(TENANTS)
        ]


@pytest.mark.timeout(3600)
async def test_a_long_history(
    env: FlowEnv, tenants: list[Tenant], replicas: Replicas, pytestconfig: pytest.Config
) -> None:
    given = pytestconfig.getoption("seed")
    seed = random.SystemRandom().randrange(2**32) if given is None else given
    await _prepare(env, tenants)
    history, watcher = History(env, tenants, replicas, random.Random(seed)), Violations()
    caches: tuple[Cache[Any], ...] = (
        devices := Cache(GPUDevice, ApiSource(env.client, GPUDevice)),
        states := Cache(GPUNodeState, ApiSource(env.client, GPUNodeState)),
        pools := Cache(GPUPool, ApiSource(env.client, GPUPool)),
    )
    devices.on_change(watcher.device)
    states.on_change(watcher.state)
    pools.on_change(watcher.pool)
    async with watching(*caches):
        for number in range(pytestconfig.getoption("steps")):
            await history.step()
            broken = [*watcher.broken, *history.broken]
            assert not broken, f"--seed {seed}, step {number}: {broken}"
        await history.settle()
    assert not watcher.broken, f"--seed {seed}: {watcher.broken}"
    # A history in which nobody was refused would prove little.
    assert history.outcomes.keys() >= {"created", NO_ACCESS}, f"--seed {seed}: {history.outcomes}"
    sys.stdout.write(f"seed {seed}: {dict(history.outcomes)}; {replicas.killed} replicas killed\n")


async def _prepare(env: FlowEnv, tenants: list[Tenant]) -> None:
    namespaces = [tenant.namespace for tenant in tenants]
    for node, profile in NODES.items():
        await env.add_nodes(node, profile=profile, cards=2)
    for name in POOLS:
        await env.add_pool(name, access={"namespaces": namespaces})
    await env.devices_known(len(CARDS))
    for number, card in enumerate(CARDS):
        await env.approve(card, POOLS[number % len(POOLS)])

    async def ready() -> bool:
        accounts = await env.client.list(ServiceAccount, Selection(fields="metadata.name=default"))
        return {account.metadata.namespace for account in accounts} >= {*namespaces}

    await until_async(ready, within=60, saying="pods can be created in every namespace")
