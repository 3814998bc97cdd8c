"""The guide's way from NVIDIA's operator to this one and back, with real Helm: values, plan, take-over, and
forgetting NVIDIA's release."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.status import State
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.cli.main import run
from gpu_control_plane.kube import Client, load_config
from helm.chart import CHART, Helm, Refused, command_of, container
from helm.conftest import cluster_for
from helm.installed import Installed, Program
from helm.nvidias_chart import BESIDE_THEM, HOME, OPERANDS, deploy, lead, write_chart
from helm.nvidias_chart import RELEASE as THEIRS
from integration.stack.operator_env import gpu_node
from waiting import until_async

pytestmark = pytest.mark.timeout(600)

CONTROLLER = "gpu-control-plane-controller"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
DAEMONSETS = f"/apis/apps/v1/namespaces/{HOME}/daemonsets"


@pytest.fixture
def cluster(helm: Helm, tmp_path: Path) -> Iterator[Installed]:
    with cluster_for(helm, tmp_path) as made:
        yield made


@pytest.fixture
async def client(cluster: Installed) -> AsyncIterator[Client]:
    async with Client(load_config(cluster.cluster.kubeconfig)) as client:
        yield client


async def test_the_way_there_and_back(
    cluster: Installed, client: Client, helm: Helm, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await client.create(Node, gpu_node("with-cards"))
    cluster.helm("install", THEIRS, str(write_chart(tmp_path / "nvidia")), "-n", HOME, "--create-namespace")
    pod = await lead(cluster)
    deploy(cluster, "with-cards")
    before, beside = _uids(cluster), _beside(cluster)
    assert before.keys() >= OPERANDS.keys()

    values = _values(cluster, tmp_path, capfd)
    notes = cluster.install(values)
    assert "kubectl label node <node> gpu.deckhouse.io/enabled=true" in notes
    assert "kubectl gpu migrate plan" in notes
    plan = await _plan(cluster, capfd)
    assert plan["operators"][0]["namespace"] == HOME
    assert (plan["problems"], plan["policy"]) == ([], "cluster-policy")
    changes = {change["name"]: change for change in plan["daemonsets"]}
    assert {changes[name]["action"] for name in OPERANDS} == {"changed"}
    assert changes["nvidia-driver-daemonset"]["restart"] == "upgrade"

    with controller(cluster, helm, values, tmp_path):
        await until_async(lambda: _condition(client, "OtherOperatorActive"), saying="ours writes nothing")
        assert _uids(cluster) == before
        assert await _command(cluster, "take-over", "--yes") == 0
        capfd.readouterr()
        await until_async(lambda: _ready(client), saying="ours has made it ready", within=180)
        after = _uids(cluster)
        assert {name: after[name] for name in before} == before, "the same objects, under the other operator"
        assert after.keys() == set(changes)
        assert _beside(cluster) == beside
        assert cluster.request("GET", f"{ROLES}/nvidia-driver")["rules"], "it has the rights that its driver needs here"
        assert (await _plan(cluster, capfd))["labels"] == []

        assert await _command(cluster, "give-back", "--yes") == 0
        assert await lead(cluster) != pod
        await until_async(lambda: _condition(client, "OtherOperatorActive"), saying="ours steps back")
        assert await _command(cluster, "take-over", "--yes") == 0

    _forget_the_release(cluster)
    assert _uids(cluster) == after
    assert not _left_of_the_operator(cluster)
    assert THEIRS not in cluster.helm("list", "-n", HOME, "-q")
    with pytest.raises(Refused, match="not found"):
        cluster.helm("uninstall", THEIRS, "-n", HOME)
    replaced = cluster.run_hook("install-crds", {**values, "crds": {"takeOver": True}})
    assert "clusterpolicies.nvidia.com: updated" in replaced
    with controller(cluster, helm, values, tmp_path):
        await until_async(lambda: _ready(client, told=True), saying="with our CRDs each state is told", within=180)
    # From now on the policy may follow our values.
    declared = {**values, "clusterPolicy": {**values["clusterPolicy"], "create": True}}
    assert cluster.run_hook("declare", declared).startswith("ClusterPolicy cluster-policy: ")


def controller(cluster: Installed, helm: Helm, values: dict[str, Any], folder: Path) -> Program:
    """The controller as the chart starts it, with its rights and images."""
    pod = helm.objects(values).pod("controller")
    command = [each.replace("$(POD_NAME)", "test") for each in command_of(pod)[1:]]
    images = {one["name"]: one["value"] for one in container(pod)["env"] if "value" in one}
    ports = ["--status-port=0", "--webhook-port=0"]
    return Program([*command, *ports], cluster.account(CONTROLLER), folder / "controller.log", **images)


def _values(cluster: Installed, folder: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """NVIDIA's values as Helm has them, translated, and what the guide sets besides."""
    given = folder / "theirs.yaml"
    given.write_text(cluster.helm("get", "values", "-a", THEIRS, "-n", HOME))
    assert run(["migrate", "values", str(given)]) == 0
    out, err = capfd.readouterr()
    assert [line.split()[1] for line in err.splitlines() if line.startswith("!")] == ["nfd.enabled:"]
    made: dict[str, Any] = yaml.safe_load(out)
    assert made["clusterPolicy"]["create"]
    for section, field, value in (
        ("operator", "namespace", HOME),
        ("clusterPolicy", "create", False),
        ("nvidiaDriver", "create", False),
    ):
        made[section][field] = value
    return made


def _forget_the_release(cluster: Installed) -> None:
    """What the guide says, to the letter."""
    for line in _guide().partition("let Helm forget")[2].partition("```\n")[2].partition("```")[0].splitlines():
        program, *words = line.split()
        assert program == "kubectl"
        cluster.kubectl(*words)


def _guide() -> str:
    return (CHART.parents[1] / "docs" / "migration.md").read_text()


async def _command(cluster: Installed, *words: str) -> int:
    """The command line in a thread, since it has a loop of its own."""
    return await asyncio.to_thread(run, ["migrate", *words, "--kubeconfig", str(cluster.cluster.kubeconfig)])


async def _plan(cluster: Installed, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capfd.readouterr()
    assert await _command(cluster, "plan", "-o", "json") == 0
    return msgspec.json.decode(capfd.readouterr().out, type=dict[str, Any])


def _uids(cluster: Installed) -> dict[str, str]:
    """The DaemonSets of the stack."""
    found = cluster.request("GET", DAEMONSETS)["items"]
    owned = [one["metadata"] for one in found if one["metadata"].get("ownerReferences")]
    return {one["name"]: one["uid"] for one in owned}


def _beside(cluster: Installed) -> dict[str, str]:
    return {place: cluster.request("GET", place)["metadata"]["uid"] for place in BESIDE_THEM}


async def _condition(client: Client, kind: str) -> bool:
    conditions = (await client.get(StoredClusterPolicy, "cluster-policy")).status.conditions
    return any(one.type == kind and one.status == "True" for one in conditions)


def _left_of_the_operator(cluster: Installed) -> str:
    kinds = "deployments,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings"
    found = cluster.kubectl("get", kinds, "-n", HOME, "-o", "name")
    return "".join(line for line in found.splitlines(keepends=True) if line.endswith("/gpu-operator\n"))


async def _ready(client: Client, *, told: bool = False) -> bool:
    """By our own word, without that of the other one beside it; `told` asks for the list of states, too."""
    status = (await client.get(StoredClusterPolicy, "cluster-policy")).status
    ours = [one.type for one in status.conditions] == ["Ready", "Error"]
    return status.state is State.READY and ours and bool(status.states) is told
