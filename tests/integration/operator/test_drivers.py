"""NVIDIADrivers on a real API server: their DaemonSets, conflicts, drift and statuses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from fault_proxy import Fault, FaultProxy, Request
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, StackEvent
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime, Selection, load_config
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.driver_secrets import DriverSecrets, Secret
from gpu_control_plane.operator.drivers.controller import DriversController
from gpu_control_plane.operator.drivers.handover import DriverOwnership
from gpu_control_plane.operator.drivers.ownership_index import OwnershipIndex
from gpu_control_plane.operator.drivers.status_reporter import DriverStatusReporter
from gpu_control_plane.operator.gpu_cluster import GPUClusterWatch
from gpu_control_plane.operator.labelling.decide import DriverOwner
from gpu_control_plane.operator.nvidia_lease import NVIDIALeaseWatch
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.stack.apply import ObjectWriter
from gpu_control_plane.operator.stack.daemonset_readiness import DaemonSetReadiness
from gpu_control_plane.operator.stack.live import LiveDaemonSet, LiveServiceAccount
from gpu_control_plane.operator.stack.live_caches import LiveCaches
from gpu_control_plane.operator.stack.platform import PlatformReader
from gpu_control_plane.operator.stack.render_input import Platform
from gpu_control_plane.operator.views import DaemonSet
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces
from integration.running import running
from unit.api.nvidia.stock import stock_driver, stock_policy
from unit.operator.drivers.builders import node
from waiting import until, until_async, until_still

NAMESPACE = "default"
HERE = Selection(namespace=NAMESPACE)
CONTROL_PLANE = (Component.ETCD, Component.APISERVER)


class Process:
    """The part of a process that carries out NVIDIADrivers."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.runtime = runtime = Runtime("test-drivers", config=proxy.config, elect=False, status_port=None)
        stored = runtime.cache(StoredNVIDIADriver)
        readiness, openshift = DaemonSetReadiness(runtime, NAMESPACE), OpenShiftWatch(runtime)
        self.ownership = DriverOwnership(OwnershipIndex(stored, runtime.cache(Node)), readiness)
        lease = NVIDIALeaseWatch(runtime, TrustedNamespaces().include)
        active_policy = ActivePolicy(
            runtime, lease, self.ownership, openshift=openshift, gpu_clusters=GPUClusterWatch(runtime)
        )
        self.policy_changed = active_policy.changed
        live = LiveCaches(runtime, NAMESPACE)
        writer = ObjectWriter(runtime.client, live)
        secrets = DriverSecrets(runtime.client, NAMESPACE, interval=0.5)
        platform = PlatformReader(Platform(namespace=NAMESPACE), live, openshift, secrets)
        self.drivers = DriversController(
            runtime,
            stored,
            active_policy,
            ownership=self.ownership,
            writer=writer,
            operands=readiness,
            platform=platform,
        )
        DriverStatusReporter(
            runtime,
            active_policy,
            self.drivers,
            readiness,
            namespace=NAMESPACE,
            upgrade=lambda _name, _last: None,
            changed=(),
            now=utc_now,
        )


@asynccontextmanager
async def process(client: Client) -> AsyncIterator[Process]:
    async with FaultProxy.before(client.config) as proxy:
        made = Process(proxy)
        async with running(made.runtime):
            yield made


@pytest.fixture(scope="module")
def quiet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server on which there are no nodes but those of these tests."""
    folder = tmp_path_factory.mktemp("drivers")
    with Cluster(folder, ensure_binaries(CONTROL_PLANE), Settings(components=CONTROL_PLANE)) as cluster:
        yield cluster


@pytest.fixture
async def quiet(quiet_server: Cluster) -> AsyncIterator[Client]:
    """A client of it. Whatever a test made is removed behind it."""
    async with Client(load_config(quiet_server.kubeconfig)) as client:
        await install(client)
        yield client
        for kind in (StoredNVIDIADriver, StoredClusterPolicy, Node):
            for item in await client.list(kind):
                await client.delete(kind, item.name)
        for item in await client.list(LiveDaemonSet, HERE):
            await client.patch(LiveDaemonSet, item.name, {"metadata": {"finalizers": None}}, namespace=NAMESPACE)
            if not item.deleting:
                await client.delete(LiveDaemonSet, item.name, NAMESPACE)
        for pod in await client.list(Pod, HERE):
            await client.delete(Pod, pod.name, NAMESPACE)


async def add_driver(client: Client, name: str, **spec: Any) -> None:
    manifest = stock_driver()
    body = {**manifest, "metadata": {"name": name}, "spec": {**manifest["spec"], "default": False, **spec}}
    await client.create(StoredNVIDIADriver, body)


async def add_node(client: Client, name: str, **facts: Any) -> None:
    await client.create(Node, {"metadata": {"name": name, "labels": node(name, **facts).metadata.labels}})


async def add_policy(client: Client, *, crd: bool) -> None:
    manifest = stock_policy()
    manifest["spec"]["driver"]["useNvidiaDriverCRD"] = crd
    await client.create(StoredClusterPolicy, manifest)


async def daemonsets(client: Client) -> list[DaemonSet]:
    found = await client.list(DaemonSet, HERE)
    return [item for item in found if not item.deleting]


async def serve(client: Client, daemonset: DaemonSet, desired: int) -> None:
    """What the DaemonSet controller would say when all pods run."""
    numbers = {
        "observedGeneration": daemonset.metadata.generation,
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": desired,
        "updatedNumberScheduled": desired,
        "numberAvailable": desired,
        "numberReady": desired,
        "numberMisscheduled": 0,
    }
    await client.patch(DaemonSet, daemonset.name, {"status": numbers}, namespace=NAMESPACE, subresource="status")


async def reason(client: Client, name: str) -> tuple[str, str]:
    """The state of an NVIDIADriver and the reason of its Error condition."""
    status = (await client.get(StoredNVIDIADriver, name)).status
    error = find(status.conditions, "Error")
    return str(status.state), error.reason if error is not None else ""


async def settles(client: Client, name: str, state: str, why: str) -> None:
    async def so() -> bool:
        return await reason(client, name) == (state, why)

    await until_async(so, saying=f"{name} is {state}/{why}")


async def there_are(client: Client, count: int, matching: Callable[[DaemonSet], bool] = lambda _item: True) -> None:
    async def so() -> bool:
        return sum(map(matching, await daemonsets(client))) == count

    await until_async(so, saying=f"{count} DaemonSets")


async def test_each_driver_gets_its_daemonsets_and_is_ready_when_they_run(quiet: Client) -> None:
    await add_policy(quiet, crd=True)
    await add_node(quiet, "a1", owner="a", labels={"pool": "a"})
    await add_node(quiet, "a2", owner="a", system="rhel 9.4", labels={"pool": "a"})
    brings_its_own = {"nvidia.com/gpu.deploy.driver": "pre-installed"}
    await add_node(quiet, "a3", owner="a", system="", labels={"pool": "a", **brings_its_own})
    await add_node(quiet, "b1", owner="b", labels={"pool": "b"})
    await add_driver(quiet, "a", nodeSelector={"pool": "a"})
    await add_driver(quiet, "b", nodeSelector={"pool": "b"}, version="580.1")
    async with process(quiet) as made:
        await there_are(quiet, 3)
        await settles(quiet, "a", "notReady", "DriverNotReady")
        for daemonset in await daemonsets(quiet):
            await serve(quiet, daemonset, 1)
        await settles(quiet, "a", "ready", "Ready")
        await settles(quiet, "b", "ready", "Ready")
        images = {item.spec.template.spec.containers[0].image for item in await daemonsets(quiet)}
        assert images == {
            "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04",
            "nvcr.io/nvidia/driver:595.91.07-rhel9",
            "nvcr.io/nvidia/driver:580.1-ubuntu24.04",
        }

        def count() -> int:
            return sum("events" not in write.path for write in made.proxy.writes)

        await until_still(count)
        before = count()
        made.policy_changed.fire()
        await until_still(count)
        assert count() == before


async def test_a_conflict_is_reported_in_all_statuses_and_changes_nothing(quiet: Client) -> None:
    await add_node(quiet, "n", owner="a", labels={"pool": "a"})
    await add_driver(quiet, "a", nodeSelector={"pool": "a"})
    async with process(quiet) as made:
        await there_are(quiet, 1)
        await add_driver(quiet, "c", nodeSelector={"pool": "a"})
        for name in ("a", "c"):
            await settles(quiet, name, "notReady", "ConflictingNodeSelector")
        held = await quiet.get(Node, "n")
        assert made.ownership.owner(held) is None
        assert len(await daemonsets(quiet)) == 1
        await quiet.patch(StoredNVIDIADriver, "c", {"spec": {"nodeSelector": {"pool": "c"}}})
        await settles(quiet, "c", "ready", "Ready")
        assert made.ownership.owner(held) == DriverOwner("a", upgrades=True)


async def test_a_policy_that_brings_drivers_itself_disables_them_and_leaves_their_pods(quiet: Client) -> None:
    await add_policy(quiet, crd=True)
    await add_node(quiet, "n", owner="d")
    await add_driver(quiet, "d", default=True)
    async with process(quiet):
        await there_are(quiet, 1)
        (held,) = await daemonsets(quiet)
        await quiet.create(Pod, _pod_of(held), NAMESPACE)
        await quiet.patch(StoredClusterPolicy, "cluster-policy", {"spec": {"driver": {"useNvidiaDriverCRD": False}}})
        await settles(quiet, "d", "disabled", "Reconciled")
        await there_are(quiet, 0)
        pod = await quiet.get(Pod, "runs-on", NAMESPACE)
        assert not pod.deleting
        assert not pod.metadata.owner_references, "the garbage collector would delete it"
        accounts = {item.name for item in await quiet.list(LiveServiceAccount, HERE)}
        assert "nvidia-gpu-driver-d-ubuntu24.04" in accounts, "pods that stay need their account"


def _pod_of(daemonset: DaemonSet) -> dict[str, Any]:
    """A running driver pod."""
    owner = controlled_by(LiveDaemonSet.resource, daemonset.name, daemonset.metadata.uid)
    labels = daemonset.spec.template.metadata.labels
    return {
        "metadata": {"name": "runs-on", "labels": labels, "ownerReferences": [msgspec.to_builtins(owner)]},
        "spec": {"containers": [{"name": "main", "image": "example.com/image:1"}]},
    }


async def test_a_driver_that_cannot_be_rendered_says_so_and_the_old_one_stays(quiet: Client) -> None:
    await add_node(quiet, "n", owner="d")
    await add_driver(quiet, "d", default=True)
    async with process(quiet):
        await there_are(quiet, 1)
        await quiet.patch(StoredNVIDIADriver, "d", {"spec": {"gds": {"enabled": True}}})
        await settles(quiet, "d", "notReady", "ReconcileFailed")
        (held,) = await daemonsets(quiet)
        assert "nvidia-fs-ctr" not in {container.name for container in held.spec.template.spec.containers}


async def test_a_driver_whose_secret_is_missing_says_so_and_is_written_when_it_is_there(quiet: Client) -> None:
    await add_node(quiet, "n", owner="d")
    await add_driver(quiet, "d", default=True)
    async with process(quiet):
        await there_are(quiet, 1)
        await quiet.patch(StoredNVIDIADriver, "d", {"spec": {"secretEnv": "credentials"}})
        await settles(quiet, "d", "notReady", "ReconcileFailed")
        missing = (
            f"the Secret credentials, which secretEnv names, is not in namespace {NAMESPACE}: create it;"
            " until then no driver is replaced"
        )
        assert missing in {held.message for held in (await quiet.get(StoredNVIDIADriver, "d")).status.conditions}
        (held,) = await daemonsets(quiet)
        assert not held.spec.template.spec.secrets

        await quiet.create(Secret, {"metadata": {"name": "credentials"}}, NAMESPACE)
        await there_are(quiet, 1, lambda item: item.spec.template.spec.secrets == {"credentials"})
        driver = await quiet.get(StoredNVIDIADriver, "d")
    told = [event for event in await quiet.list(Event, HERE) if event.reason == StackEvent.OPERAND_NOT_READY]
    ours = [event.note for event in told if event.regarding and event.regarding.uid == driver.metadata.uid]
    assert ours == [missing]
    await quiet.delete(Secret, "credentials", NAMESPACE)


async def test_what_the_api_server_refuses_is_tried_again_and_is_no_drift(quiet: Client) -> None:
    """A quota, a webhook that is away: nothing changes in the cluster when they let it pass at last."""

    def refused(request: Request) -> bool:
        return request.method == "POST" and request.path.endswith("/daemonsets")

    async with process(quiet) as made:
        made.proxy.plant(Fault(when=refused, times=float("inf"), status=403, reason="Forbidden"))
        await add_node(quiet, "n", owner="d")
        await add_driver(quiet, "d", default=True)
        await settles(quiet, "d", "notReady", "ReconcileFailed")
        await until(lambda: sum(map(refused, made.proxy.requests)) > 5, saying="it is tried again")
        made.proxy.faults.clear()
        await there_are(quiet, 1)
        await settles(quiet, "d", "notReady", "DriverNotReady")
        driver = await quiet.get(StoredNVIDIADriver, "d")
    told = await quiet.list(Event, HERE)  # all of them: they are written before a process ends
    ours = [event for event in told if event.regarding and event.regarding.uid == driver.metadata.uid]
    assert not [event.note for event in ours if event.reason == StackEvent.DRIFT_REPAIRED]


async def test_a_deletion_that_the_api_server_refuses_is_tried_again(quiet: Client) -> None:
    def refused(request: Request) -> bool:
        return request.method == "DELETE" and "/daemonsets/" in request.path

    await add_policy(quiet, crd=True)
    await add_node(quiet, "n", owner="d")
    await add_driver(quiet, "d", default=True)
    async with process(quiet) as made:
        await there_are(quiet, 1)
        made.proxy.plant(Fault(when=refused, times=5, status=403, reason="Forbidden"))
        await quiet.patch(StoredClusterPolicy, "cluster-policy", {"spec": {"driver": {"useNvidiaDriverCRD": False}}})
        await there_are(quiet, 0)


async def test_a_restart_during_a_conflict_keeps_the_status(quiet: Client) -> None:
    await add_node(quiet, "n", owner="a", labels={"pool": "a"})
    await add_driver(quiet, "a", nodeSelector={"pool": "a"})
    async with process(quiet) as made:
        await there_are(quiet, 1)
        for daemonset in await daemonsets(quiet):
            await serve(quiet, daemonset, 1)
        await settles(quiet, "a", "ready", "Ready")
        await add_driver(quiet, "c", nodeSelector={"pool": "a"})
        for name in ("a", "c"):
            await settles(quiet, name, "notReady", "ConflictingNodeSelector")
    before = (await quiet.get(StoredNVIDIADriver, "a")).status
    assert [state.state for state in before.states] == ["ready"]
    async with process(quiet) as made:
        await until(lambda: made.drivers.results.keys() == {"a", "c"})
        await until_still(lambda: len(made.proxy.requests))
        assert (await quiet.get(StoredNVIDIADriver, "a")).status == before


async def test_another_writers_change_is_undone(quiet: Client) -> None:
    await add_node(quiet, "n", owner="d")
    await add_driver(quiet, "d", default=True)
    async with process(quiet):
        await there_are(quiet, 1)
        (held,) = await daemonsets(quiet)
        patch = {"spec": {"template": {"spec": {"priorityClassName": "mine"}}}}
        await quiet.patch(LiveDaemonSet, held.name, patch, namespace=NAMESPACE)
        await quiet.delete(LiveServiceAccount, "nvidia-gpu-driver-d-ubuntu24.04", NAMESPACE)

        async def repaired() -> bool:
            found = await quiet.get(LiveDaemonSet, held.name, NAMESPACE)
            accounts = {item.name for item in await quiet.list(LiveServiceAccount, HERE)}
            spec = msgspec.to_builtins(found.spec)
            return (
                spec["template"]["spec"]["priorityClassName"] == "system-node-critical"
                and "nvidia-gpu-driver-d-ubuntu24.04" in accounts
            )

        await until_async(repaired)


async def test_the_daemonset_of_a_kernel_is_deleted_when_its_last_node_has_another_kernel(quiet: Client) -> None:
    await add_node(quiet, "n", owner="d")
    await add_driver(quiet, "d", default=True, usePrecompiled=True)
    async with process(quiet):
        await there_are(quiet, 1)
        (old,) = await daemonsets(quiet)
        await serve(quiet, old, 1)
        await quiet.patch(Node, "n", {"metadata": {"labels": {NodeLabel.KERNEL.value: "6.8.0-99-generic"}}})
        await there_are(quiet, 2)
        await serve(quiet, old, 0)
        await there_are(quiet, 1, lambda item: item.name != old.name)
        await there_are(quiet, 1)


async def test_orphaned_driver_pods_are_deleted_without_any_policy_or_driver(quiet: Client) -> None:
    for name, labels in (("left", {"app.kubernetes.io/component": "nvidia-driver"}), ("other", {"app": "web"})):
        container = {"name": "main", "image": "example.com/image:1"}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}
        await quiet.create(Pod, body, NAMESPACE)
    await add_policy(quiet, crd=True)
    await add_driver(quiet, "d", default=True)

    async def pods() -> set[str]:
        return {pod.name for pod in await quiet.list(Pod, HERE) if not pod.deleting}

    async with process(quiet) as made:
        await settles(quiet, "d", "ready", "Ready")
        await quiet.delete(StoredClusterPolicy, "cluster-policy")
        await until_still(lambda: len(made.proxy.writes))
        assert await pods() == {"left", "other"}, "an upgrade of the NVIDIADriver replaces it"
        await quiet.delete(StoredNVIDIADriver, "d")
        await until_async(lambda: _is(pods, {"other"}), saying="the orphaned pod stays")
        await quiet.delete(Pod, "other", NAMESPACE)


async def _is(look: Callable[[], Awaitable[set[str]]], wanted: set[str]) -> bool:
    return await look() == wanted
