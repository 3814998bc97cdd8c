"""The Lease of NVIDIA's operator on a real API server: appearing, renewed, running out, deleted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from fault_proxy import FaultProxy
from gpu_control_plane.api.nvidia.names import LEASE
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import GRACE_PERIOD, LeaseHolder, TimedLease
from gpu_control_plane.kube.signal import Fired
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.operator.nvidia_lease import NVIDIALeaseWatch
from integration.running import running
from waiting import until

LASTS = 15


class Watching:
    """A watch in a process of its own, and the holder each time that it fired its signal."""

    def __init__(self, proxy: FaultProxy, theirs: str) -> None:
        self.runtime = Runtime("test-nvidia-lease", config=proxy.config, elect=False, status_port=None)
        self.watch = NVIDIALeaseWatch(self.runtime, lambda namespace: namespace == theirs)
        self.holders: list[str] = []
        self.watch.changed.on_change(self._record)

    def _record(self, _old: Fired | None, _new: Fired | None) -> None:
        holder = self.watch.active()
        self.holders.append(holder.holder if holder else "none")


@asynccontextmanager
async def watching(proxy: FaultProxy, theirs: str) -> AsyncIterator[Watching]:
    made = Watching(proxy, theirs)
    async with running(made.runtime) as task:
        await until(lambda: made.watch._leases.is_synced or task.done())
        yield made


@pytest.fixture
async def theirs(client: Client, namespace: str) -> AsyncIterator[str]:
    """A namespace for NVIDIA's operator; its Lease does not outlive the test, as it would concern others."""
    yield namespace
    try:
        await client.delete(TimedLease, LEASE, namespace)
    except NotFound:
        return


async def held(client: Client, namespace: str, holder: str, at: datetime | None = None) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": LASTS, "renewTime": micro_time(at or utc_now())}
    try:
        await client.patch(TimedLease, LEASE, {"spec": spec}, namespace=namespace)
    except NotFound:
        await client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, namespace)


async def test_each_change_of_the_holder_is_signalled_once_and_renewals_are_not(client: Client, theirs: str) -> None:
    async with FaultProxy.before(client.config) as proxy, watching(proxy, theirs) as seen:
        assert seen.watch.active() is None
        await held(client, theirs, "first")
        await until(lambda: seen.holders == ["first"])
        for _ in range(3):
            await held(client, theirs, "first")
        await held(client, theirs, "second")
        await until(lambda: "second" in seen.holders)
        active = seen.watch.active()
        assert active is not None
        assert (active.namespace, active.holder) == (theirs, "second")
        await client.delete(TimedLease, LEASE, theirs)
        await until(lambda: seen.holders[-1] == "none")
        assert seen.holders == ["first", "second", "none"]
        assert seen.watch.active() is None
        assert proxy.writes == []


async def test_a_lease_that_is_not_renewed_ends_without_a_request(client: Client, theirs: str) -> None:
    """A few seconds before the end: nothing happens in the cluster any more, and yet the end is noticed."""
    async with FaultProxy.before(client.config) as proxy, watching(proxy, theirs) as seen:
        await held(client, theirs, "crashed", utc_now() - GRACE_PERIOD - timedelta(seconds=LASTS - 4))
        await until(lambda: seen.holders == ["crashed"])
        before = len(proxy.requests)
        await until(lambda: seen.holders == ["crashed", "none"])
        assert len(proxy.requests) == before


async def test_other_leases_do_not_matter(client: Client, theirs: str) -> None:
    now = micro_time(utc_now())
    spec = {"holderIdentity": "x", "leaseDurationSeconds": LASTS, "renewTime": now}
    await client.create(TimedLease, {"metadata": {"name": "another"}, "spec": spec}, theirs)
    async with FaultProxy.before(client.config) as proxy, watching(proxy, theirs) as seen:
        assert seen.watch.active() is None
        await held(client, theirs, "first")
        await until(lambda: seen.holders == ["first"])
        await client.delete(TimedLease, "another", theirs)


async def test_the_holder_is_known_after_a_restart(client: Client, theirs: str) -> None:
    await held(client, theirs, "first")
    async with FaultProxy.before(client.config) as proxy:
        for _ in range(2):
            async with watching(proxy, theirs) as seen:
                assert isinstance(seen.watch.active(), LeaseHolder)
                await until(lambda: seen.holders == ["first"])
