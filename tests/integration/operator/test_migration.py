"""Taking over from NVIDIA's operator and giving back, on a real API server. The tests act as its pods."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import LEASE, NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.cli.main import run
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime, Selection
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.local import Cluster
from gpu_control_plane.migration.deployment import Deployment, ReplicaSet
from gpu_control_plane.migration.operator_switch import SwitchError, find_operator, give_back, take_over
from gpu_control_plane.migration.other_operator import OUR_LEASE, REPLICAS_BEFORE
from gpu_control_plane.operator.migration.daemonset_changes import DaemonSetAction
from gpu_control_plane.operator.migration.desired import desired_stack
from gpu_control_plane.operator.migration.installation import NVIDIA, FullDaemonSet, read_installation
from gpu_control_plane.operator.migration.plan import plan_migration
from gpu_control_plane.operator.migration.values import translate
from gpu_control_plane.operator.nvidia_lease import NVIDIALeaseWatch
from integration.conftest import Namespace
from integration.running import running
from waiting import until, until_async


class NvidiasOperator:
    """NVIDIA's operator as a cluster shows it: a Deployment, its ReplicaSet, a pod and the Lease that the pod holds."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.pod = f"gpu-operator-{secrets.token_hex(3)}"
        self.labels = {"app": "gpu-operator", "app.kubernetes.io/component": "gpu-operator"}

    async def start(self, replicas: int = 1, labels: dict[str, str] | None = None, *, lease: bool = True) -> None:
        self.labels = labels or self.labels
        images = [{"name": "DRIVER_MANAGER_IMAGE", "value": "r/manager:1"}]
        container = {"name": "gpu-operator", "image": "r/gpu-operator:1", "env": images}
        spec = {
            "selector": {"matchLabels": self.labels},
            "template": {"metadata": {"labels": self.labels}, "spec": {"containers": [container]}},
        }
        made = await self.client.create(
            Deployment,
            {"metadata": {"name": "gpu-operator", "labels": self.labels}, "spec": {**spec, "replicas": replicas}},
            self.namespace,
        )
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": made.name, "uid": made.metadata.uid}
        replica_set = await self.client.create(
            ReplicaSet,
            {"metadata": {"name": "gpu-operator-1", "ownerReferences": [owner | {"controller": True}]}, "spec": spec},
            self.namespace,
        )
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set.name}
        owner |= {"uid": replica_set.metadata.uid}
        metadata = {"name": self.pod, "labels": self.labels, "ownerReferences": [owner | {"controller": True}]}
        await self.client.create(
            Pod, {"metadata": metadata, "spec": {"containers": [{"name": "x", "image": "x"}]}}, self.namespace
        )
        if lease:
            await held(self.client, LEASE, self.namespace, f"{self.pod}_1f2e")

    async def deployment(self) -> Deployment:
        return await self.client.get(Deployment, "gpu-operator", self.namespace)

    async def end_pods(self) -> None:
        """What the ReplicaSet's controller and the kubelet do once the Deployment has no replicas."""

        async def scaled_down() -> bool:
            return (await self.deployment()).replicas == 0

        await until_async(scaled_down)
        await self.client.delete(Pod, self.pod, self.namespace)

    async def lease(self) -> TimedLease | None:
        try:
            return await self.client.get(TimedLease, LEASE, self.namespace)
        except NotFound:
            return None


async def held(client: Client, name: str, namespace: str, holder: str, *, seconds_ago: float = 0) -> None:
    renewed = micro_time(utc_now() - timedelta(seconds=seconds_ago))
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": renewed}
    await client.create(TimedLease, {"metadata": {"name": name}, "spec": spec}, namespace)


@pytest.fixture
async def nvidias(client: Client, namespace: str) -> AsyncIterator[NvidiasOperator]:
    """Gone after the test, since Leases and Deployments are looked for in the whole cluster."""
    await install(client)
    yield NvidiasOperator(client, namespace)
    left = (
        (TimedLease, LEASE, namespace),
        (TimedLease, OUR_LEASE, NAMESPACE),
        (Deployment, "gpu-operator", namespace),
    )
    for kind, name, place in left:
        try:
            await client.delete(kind, name, place)
        except NotFound:
            continue


@pytest.fixture
async def other_namespace(client: Client) -> str:
    return (await client.create(Namespace, {"metadata": {"generateName": "other-"}})).name


async def test_taking_over_scales_nvidias_operator_down_and_giving_back_scales_it_up(
    client: Client, nvidias: NvidiasOperator
) -> None:
    await nvidias.start(replicas=2)
    seen: list[str] = []
    taking = asyncio.create_task(
        take_over(client, NVIDIA, await find_operator(client, NVIDIA, NAMESPACE, None), NAMESPACE, progress=seen.append)
    )
    await until(lambda: seen)
    assert await nvidias.lease() is not None, "the Lease stays as long as a pod does"
    await nvidias.end_pods()
    done = await taking
    assert (done.replicas, done.lease_deleted, done.other_holder) == (2, True, None)
    assert await nvidias.lease() is None
    stopped = await nvidias.deployment()
    assert (stopped.replicas, stopped.metadata.annotations[REPLICAS_BEFORE]) == (0, "2")
    back = await give_back(client, await find_operator(client, NVIDIA, NAMESPACE, None))
    woken = await nvidias.deployment()
    assert back.replicas == woken.replicas == 2
    assert REPLICAS_BEFORE not in woken.metadata.annotations


async def test_our_operator_may_write_as_soon_as_the_take_over_is_done(
    client: Client, nvidias: NvidiasOperator
) -> None:
    """Not ten minutes later, as after a crash."""
    await nvidias.start()
    runtime = Runtime("test-handover", config=client.config, elect=False, status_port=None)
    watch = NVIDIALeaseWatch(runtime, lambda namespace: namespace == nvidias.namespace)
    async with running(runtime) as process:
        await until(lambda: watch.active() or process.done())
        taking = asyncio.create_task(
            take_over(client, NVIDIA, await find_operator(client, NVIDIA, NAMESPACE, None), NAMESPACE)
        )
        await nvidias.end_pods()
        await taking
        await until(lambda: watch.active() is None)


async def test_a_take_over_that_was_interrupted_is_finished_by_the_next(
    client: Client, nvidias: NvidiasOperator
) -> None:
    await nvidias.start(replicas=3)
    with pytest.raises(SwitchError, match=nvidias.pod):
        await take_over(client, NVIDIA, await find_operator(client, NVIDIA, NAMESPACE, None), NAMESPACE, timeout=0.5)
    assert await nvidias.lease() is not None
    await nvidias.end_pods()
    done = await take_over(client, NVIDIA, await find_operator(client, NVIDIA, NAMESPACE, None), NAMESPACE)
    assert (done.replicas, done.lease_deleted) == (3, True)
    again = await take_over(client, NVIDIA, await find_operator(client, NVIDIA, NAMESPACE, None), NAMESPACE)
    assert (again.replicas, again.lease_deleted) == (3, False)


async def test_an_operator_with_other_labels_is_found_by_its_lease_and_later_by_its_annotation(
    client: Client, nvidias: NvidiasOperator
) -> None:
    await nvidias.start(labels={"team": "gpu"})
    found = await find_operator(client, NVIDIA, NAMESPACE, None)
    assert (found.name, found.metadata.namespace) == ("gpu-operator", nvidias.namespace)
    taking = asyncio.create_task(take_over(client, NVIDIA, found, NAMESPACE))
    await nvidias.end_pods()
    await taking
    assert (await find_operator(client, NVIDIA, NAMESPACE, None)).key == found.key


async def test_the_lease_of_another_pod_is_left_alone(client: Client, nvidias: NvidiasOperator) -> None:
    await nvidias.start(lease=False)
    stranger = {"metadata": {"name": "stranger"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    await client.create(Pod, stranger, nvidias.namespace)
    await held(client, LEASE, nvidias.namespace, "stranger_1")
    taking = asyncio.create_task(
        take_over(client, NVIDIA, await find_operator(client, NVIDIA, NAMESPACE, nvidias.namespace), NAMESPACE)
    )
    await nvidias.end_pods()
    with pytest.raises(SwitchError, match="stranger holds the Lease"):
        await taking
    assert await nvidias.lease() is not None


async def test_a_namespace_that_was_named_is_the_only_one_that_counts(
    client: Client, nvidias: NvidiasOperator, other_namespace: str
) -> None:
    await nvidias.start()
    with pytest.raises(SwitchError, match=f"not found in namespace {other_namespace}"):
        await find_operator(client, NVIDIA, NAMESPACE, other_namespace)


async def test_without_it_there_is_nothing_to_take_over(client: Client, namespace: str) -> None:
    with pytest.raises(SwitchError, match="was not found"):
        await find_operator(client, NVIDIA, NAMESPACE, namespace)


async def command(api_server: Cluster, *arguments: str) -> int:
    """The command line in a thread, since it has a loop of its own."""
    return await asyncio.to_thread(run, ["migrate", *arguments, "--kubeconfig", str(api_server.kubeconfig)])


@pytest.mark.parametrize("crashed", [False, True])
async def test_the_command_refuses_while_our_operator_does_not_run(
    client: Client, api_server: Cluster, nvidias: NvidiasOperator, capfd: pytest.CaptureFixture[str], crashed: bool
) -> None:
    await nvidias.start()
    if crashed:
        await held(client, OUR_LEASE, NAMESPACE, "controller-1", seconds_ago=70)
    assert await command(api_server, "take-over", "--yes") == 1
    assert "This operator does not run here" in capfd.readouterr().err
    assert (await nvidias.deployment()).replicas == 1


@pytest.fixture
async def release(client: Client) -> AsyncIterator[Deployment]:
    """Our controllers as Helm installs them, with operands in our own namespace."""
    await install(client)
    labels = {"app.kubernetes.io/component": "controller"}
    container = {"name": "controller", "image": "x", "args": [f"--operand-namespace={NAMESPACE}"]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    yield await client.create(
        Deployment, {"metadata": {"name": "gpu-control-plane-controller"}, "spec": spec}, NAMESPACE
    )
    await client.delete(Deployment, "gpu-control-plane-controller", NAMESPACE)


async def test_the_command_refuses_what_would_do_harm(
    client: Client,
    api_server: Cluster,
    nvidias: NvidiasOperator,
    release: Deployment,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Operands of ours beside those that run would give each node a second driver."""
    await nvidias.start()
    await held(client, OUR_LEASE, NAMESPACE, "controller-1")
    name = f"policy-{secrets.token_hex(3)}"
    spec = translate({}).values["clusterPolicy"]["spec"]
    try:
        policy = await client.create(StoredClusterPolicy, {"metadata": {"name": name}, "spec": spec})
        owner = controlled_by(policy.resource, name, policy.metadata.uid)
        labels = {"app": "nvidia-driver-daemonset"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        await client.create(
            FullDaemonSet,
            {
                "metadata": {"name": labels["app"], "ownerReferences": [msgspec.to_builtins(owner)]},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            },
            nvidias.namespace,
        )
        assert await command(api_server, "take-over", "--yes") == 1
        assert f"Set operator.namespace={nvidias.namespace}" in capfd.readouterr().err
        assert (await nvidias.deployment()).replicas == 1
        await client.delete(TimedLease, OUR_LEASE, NAMESPACE)
        taking = asyncio.create_task(command(api_server, "take-over", "--yes", "--force"))
        await nvidias.end_pods()
        assert await taking == 0
        assert "nothing manages the stack" in capfd.readouterr().out
    finally:
        await client.delete(StoredClusterPolicy, name)


async def test_a_take_over_beside_a_second_set_of_operands_is_refused(
    client: Client,
    api_server: Cluster,
    nvidias: NvidiasOperator,
    other_namespace: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of an operator that runs outside Helm, and holds no Lease."""
    await install(client)
    await nvidias.start()
    await held(client, OUR_LEASE, NAMESPACE, "controller-1")
    for name in ("nvidia-driver-daemonset", "nvidia-device-plugin-daemonset"):
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await client.create(FullDaemonSet, {"metadata": {"name": name}, "spec": spec}, other_namespace)
        numbers = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
        status = {"status": dict.fromkeys(numbers, 0) | {"desiredNumberScheduled": 2}}
        await client.patch(FullDaemonSet, name, status, namespace=other_namespace, subresource="status")
    try:
        assert await command(api_server, "take-over", "--yes") == 1
        said = capfd.readouterr().err
        assert f"more operands in {other_namespace}: nvidia-device-plugin-daemonset, nvidia-driver-daemonset" in said
        assert (await nvidias.deployment()).replicas == 1
    finally:
        for one in await client.list(FullDaemonSet, Selection(other_namespace)):
            await client.delete(FullDaemonSet, one.name, other_namespace)


async def test_a_plan_for_a_namespace_without_nvidias_operator_is_refused(
    client: Client,
    api_server: Cluster,
    nvidias: NvidiasOperator,
    other_namespace: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    await install(client)
    await nvidias.start()
    for namespace in (other_namespace, "no-such-namespace"):
        assert await command(api_server, "plan", "--namespace", namespace) == 1
        out, err = capfd.readouterr()
        assert f"Namespace {namespace} has nothing of NVIDIA's operator" in err
        assert out == ""
    assert await command(api_server, "plan", "--namespace", nvidias.namespace) == 0


async def test_the_command_says_that_the_cluster_may_not_be_read(
    client: Client, api_server: Cluster, namespace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    unprivileged = tmp_path / "unprivileged"
    config["users"][0]["user"]["as"] = f"system:serviceaccount:{namespace}:unprivileged"
    unprivileged.write_text(yaml.safe_dump(config))
    assert await asyncio.to_thread(run, ["migrate", "plan", "--kubeconfig", str(unprivileged)]) == 1
    assert "Use the kubeconfig of an administrator" in capfd.readouterr().err


async def test_the_command_says_what_it_did_and_the_way_back(
    client: Client, api_server: Cluster, nvidias: NvidiasOperator, capfd: pytest.CaptureFixture[str]
) -> None:
    await nvidias.start()
    await held(client, OUR_LEASE, NAMESPACE, "controller-1")
    taking = asyncio.create_task(command(api_server, "take-over", "--yes"))
    await nvidias.end_pods()
    assert await taking == 0
    out = capfd.readouterr().out
    assert f"✓ {nvidias.namespace}/gpu-operator is scaled to zero; it had 1 replica." in out
    assert "✓ Its Lease was deleted." in out
    assert "kubectl gpu migrate give-back" in out
    assert await command(api_server, "give-back", "--yes") == 0
    assert "has 1 replica again." in capfd.readouterr().out


async def test_a_plan_is_made_from_what_runs(
    client: Client, api_server: Cluster, nvidias: NvidiasOperator, capfd: pytest.CaptureFixture[str]
) -> None:
    await install(client)
    await nvidias.start()
    name = f"policy-{secrets.token_hex(3)}"
    spec = translate({}).values["clusterPolicy"]["spec"]
    spec["driver"]["useOpenKernelModules"] = True
    labels: dict[str, str] = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    labels |= {NodeLabel.OS_ID: "ubuntu", NodeLabel.OS_VERSION: "24.04", NodeLabel.KERNEL: "6.8.0-60-generic"}
    try:
        await client.create(StoredClusterPolicy, {"metadata": {"name": name}, "spec": spec})
        await client.create(Node, {"metadata": {"name": name, "labels": labels}})
        found = await read_installation(client, NAMESPACE)
        assert found.nvidia_holder is not None
        assert (found.nvidia_holder.namespace, found.namespace) == (nvidias.namespace, nvidias.namespace)
        assert found.our_holder is None
        assert found.deployments[0].images == {"DRIVER_MANAGER_IMAGE": "r/manager:1"}
        assert await command(api_server, "plan", "-o", "json") == 0
        plan: dict[str, Any] = msgspec.json.decode(capfd.readouterr().out)
        assert {note["path"] for note in plan["fields"]} == {"driver.useOpenKernelModules"}
        assert any(change["key"] == "nvidia.com/gpu.present" and name in change["nodes"] for change in plan["labels"])
        assert plan["holder"] == f"{nvidias.pod}_1f2e"
        assert await command(api_server, "plan") == 0
        assert f"NVIDIA's operator: {nvidias.namespace}/gpu-operator, 1 replica, active" in capfd.readouterr().out
        wanted = desired_stack(found)
        assert wanted is not None
        daemonsets = [one for state in wanted.states for one in state.manifests if one["kind"] == "DaemonSet"]
        assert {change["name"] for change in plan["daemonsets"] if change["action"] == "created"} == {
            one["metadata"]["name"] for one in daemonsets
        }
        for one in daemonsets:
            await client.create(FullDaemonSet, one, nvidias.namespace)
        later = plan_migration(await read_installation(client, NAMESPACE), wanted)
        assert {change.action for change in later.daemonsets} == {DaemonSetAction.KEPT}, (
            "the server's own defaults are no change"
        )
    finally:
        await client.delete(StoredClusterPolicy, name)
        await client.delete(Node, name)
