"""The command that starts Ray, by the worked examples of KubeRay's rules."""

import shlex
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.ray.cluster.manifests import ClusterContext, start_param_problems
from gpu_control_plane.ray.options import RayOptions
from unit.ray.ray_clusters import (
    UID,
    Json,
    env_of,
    gpu_pool,
    group,
    head_of,
    pools,
    ray_cluster,
    ray_of,
    template,
    worker_of,
)

ULIMIT = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "
ADDRESS = "--address=rc-head-svc.ns.svc.cluster.local:6379"
COMMON = ["--block", "--dashboard-agent-listen-port=52365", "--metrics-export-port=8080"]
HEAD = [*COMMON, "--dashboard-host=0.0.0.0"]
WORKER = [ADDRESS, *COMMON]


def command_of(pod: Json) -> str:
    """`ray start` as it is generated."""
    return env_of(ray_of(pod))["KUBERAY_GEN_RAY_START_CMD"]


def flags(pod: Json) -> list[str]:
    """The flags, with the two spaces between them that KubeRay writes."""
    command = command_of(pod)
    begin = "ray start --head " if command.startswith("ray start --head ") else "ray start "
    return [flag.strip(" ") for flag in command.removeprefix(begin).split("  ")]


def with_head(**head: Any) -> Json:
    return head_of(ClusterContext(cluster=ray_cluster(head=head)))


def with_worker(context: ClusterContext | None = None, head: Json | None = None, **rest: Any) -> Json:
    cluster = ray_cluster(group(**rest), head=head)
    return worker_of(msgspec.structs.replace(context or ClusterContext(cluster=cluster), cluster=cluster))


def test_example_1_a_head_knows_its_cpus_and_memory() -> None:
    pod = with_head(template=template({"cpu": "1", "memory": "2Gi"}))
    assert flags(pod) == sorted([*HEAD, "--memory=2147483648", "--num-cpus=1"])
    assert command_of(pod).startswith(
        "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host="
    )
    assert env_of(ray_of(pod))["RAY_ADDRESS"] == "127.0.0.1:6379"
    assert ray_of(pod)["command"] == ["/bin/bash", "-c", "--"]
    assert ray_of(pod)["args"] == [ULIMIT + command_of(pod)]


def test_example_2_a_worker_rounds_its_cpus_up_and_knows_the_head() -> None:
    pod = with_worker(template=template({"cpu": "500m", "memory": "1G"}))
    assert flags(pod) == sorted([*WORKER, "--memory=1000000000", "--num-cpus=1"])
    env = env_of(ray_of(pod))
    assert (env["FQ_RAY_IP"], env["RAY_IP"]) == ("rc-head-svc.ns.svc.cluster.local", "rc-head-svc")
    assert command_of(pod).startswith("ray start  --address=")


WORKERS: dict[str, tuple[Json, list[str]]] = {
    "3 requests count for CPUs alone": (
        {"template": template(requests={"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"})},
        ["--num-cpus=2"],
    ),
    "4 limits count for everything": (
        {"template": template({"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 4})},
        ["--memory=68719476736", "--num-cpus=8", "--num-gpus=4"],
    ),
    "5 a MIG instance is a GPU": ({"template": template({"nvidia.com/mig-1g.10gb": "2"})}, ["--num-gpus=2"]),
    "6 a name of nobody's pool is no GPU": ({"template": template({"gpu.deckhouse.io/pool-a": "1"})}, []),
    "7 of two kinds of GPU the first by name counts": (
        {"template": template({"amd.com/gpu": "1", "nvidia.com/gpu": "3"})},
        ["--num-gpus=1"],
    ),
    "11 a TPU is a resource of Ray": (
        {"template": template({"google.com/tpu": "4"})},
        ["--resources='{\"TPU\":4}'"],
    ),
    "12 the first accelerator joins the user's resources": (
        {
            "template": template({"aws.amazon.com/neuroncore": "4", "google.com/tpu": "8"}),
            "rayStartParams": {"resources": "'{\"custom\": 2}'"},
        },
        ['--resources=\'{"custom":2,"neuron_cores":4}\''],
    ),
    "13 the field resources replaces what the container has": (
        {
            "template": template({"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 8}),
            "resources": {"CPU": "4", "memory": "8Gi", "GPU": "2", "gpu.deckhouse.io/pool-a": "1"},
        },
        [
            "--memory=8589934592",
            "--num-cpus=4",
            "--num-gpus=2",
            "--resources='{\"gpu.deckhouse.io/pool-a\":1}'",
        ],
    ),
    "14 the field labels": ({"labels": {"team": "a", "ray.io/region": "eu"}}, ["--labels=ray.io/region=eu,team=a"]),
    "18 resources that cannot be read stay, and hide the cards": (
        {
            "template": template({"google.com/tpu": "4", "nvidia.com/gpu": "1"}),
            "rayStartParams": {"resources": '"{\\"a\\": 1}"'},
        },
        ['--resources="{\\"a\\": 1}"'],
    ),
}


@pytest.mark.parametrize(("worker", "added"), WORKERS.values(), ids=WORKERS.keys())
def test_a_worker_is_started_as_in_example(worker: Json, added: list[str]) -> None:
    assert flags(with_worker(**worker)) == sorted([*WORKER, *added])


def test_example_6_differs_on_purpose_for_names_that_kuberay_misses() -> None:
    """KubeRay tells Ray of no GPU in these containers, and Ray leaves their cards unused. Here they are understood:
    shares and MIG instances by NVIDIA's own names, and whatever a pool offers by the pool."""
    own = ClusterContext(cluster=ray_cluster(), gpus=pools(gpu_pool("pool-a")))
    assert "--num-gpus=1" in flags(with_worker(own, template=template({"gpu.deckhouse.io/pool-a": "1"})))
    for name in ("nvidia.com/mig-1g.10gb.shared", "nvidia.com/gpu.shared", "nvidia.com/mig-1c.2g.20gb"):
        assert "--num-gpus=1" in flags(with_worker(template=template({name: "1"})))


def test_example_8_a_parameter_of_the_user_stays() -> None:
    pod = with_head(rayStartParams={"num-cpus": "0"}, template=template({"cpu": "4", "nvidia.com/gpu": "0"}))
    assert flags(pod) == sorted([*HEAD, "--num-cpus=0"])


def test_example_9_with_an_autoscaler_the_head_has_no_monitor() -> None:
    cluster = ray_cluster(enableInTreeAutoscaling=True, autoscalerOptions={"version": "v2"})
    pod = head_of(ClusterContext(cluster=cluster))
    assert flags(pod) == sorted([*HEAD, "--no-monitor"])
    assert env_of(ray_of(pod))["RAY_enable_autoscaler_v2"] == "true"


def test_example_10_truth_values_are_there_or_are_not() -> None:
    pod = with_head(
        rayStartParams={
            "include-dashboard": "false",
            "disable-usage-stats": "True",
            "verbose": "false",
            "block": "false",
            "log-color": "TRUE",
        }
    )
    assert flags(pod) == sorted([*HEAD, "--disable-usage-stats", "--include-dashboard=false", "--log-color=TRUE"])


def test_example_14_labels_of_ray_are_labels_of_the_pod() -> None:
    pod = with_worker(labels={"team": "a", "ray.io/region": "eu"})
    assert pod["metadata"]["labels"].items() >= {"team": "a", "ray.io/region": "eu"}.items()


def test_example_15_redis_is_named_by_variables() -> None:
    cluster = ray_cluster(gcsFaultToleranceOptions={"redisAddress": "redis:6379", "redisPassword": {"value": "x"}})
    pod = head_of(ClusterContext(cluster=cluster))
    assert flags(pod) == sorted([*HEAD, "--redis-password=$REDIS_PASSWORD"])
    expected = {"RAY_REDIS_ADDRESS": "redis:6379", "REDIS_PASSWORD": "x", "RAY_external_storage_namespace": UID}
    assert env_of(ray_of(pod)).items() >= expected.items()


def test_example_16_workers_follow_the_port_of_the_head() -> None:
    pod = with_worker(head={"rayStartParams": {"port": "6380"}})
    assert "--address=rc-head-svc.ns.svc.cluster.local:6380" in flags(pod)
    assert env_of(ray_of(pod))["RAY_PORT"] == "6380"


def test_example_17_the_command_of_the_user_comes_first() -> None:
    pod = with_worker(template=template(command=["echo"], args=["hi"]))
    assert ray_of(pod)["args"] == [f" echo  hi  && {ULIMIT}{command_of(pod)}"]


@pytest.mark.parametrize("where", ["cluster", "template"])
def test_a_command_stays_where_the_annotation_says_so(where: str) -> None:
    mark = {"ray.io/overwrite-container-cmd": "True"}
    held = template(command=["sleep"], args=["1"])
    held["metadata"] = {"annotations": mark if where == "template" else {}}
    cluster = ray_cluster(head={"template": held}, annotations=mark if where == "cluster" else {})
    pod = head_of(ClusterContext(cluster=cluster))
    assert (ray_of(pod)["command"], ray_of(pod)["args"]) == (["sleep"], ["1"])
    assert command_of(pod).startswith("ray start --head ")


def test_a_command_that_starts_ray_stays() -> None:
    pod = with_head(template=template(command=["bash", "-c"], args=["ray start --head --block"]))
    assert ray_of(pod)["args"] == ["ray start --head --block"]


def test_a_login_shell_is_an_option() -> None:
    pod = head_of(ClusterContext(cluster=ray_cluster(), options=RayOptions(login_shell=True)))
    assert ray_of(pod)["command"] == ["/bin/bash", "-cl", "--"]


PROBLEMS: dict[str, tuple[Json, str | None]] = {
    "JSON in single quotes": ({"rayStartParams": {"resources": "'{\"a\": 1}'"}}, None),
    "JSON with escapes": ({"rayStartParams": {"resources": '"{\\"a\\": 1}"'}}, "rayStartParams.resources"),
    "a list": ({"rayStartParams": {"resources": "'[1]'"}}, "rayStartParams.resources"),
    "text for a number": ({"rayStartParams": {"resources": '\'{"a": "1"}\''}}, "rayStartParams.resources"),
    "no quantity": ({"resources": {"GPU": "two"}}, "resources[GPU]"),
    "quantities": ({"resources": {"GPU": "2", "memory": "1Gi"}}, None),
}


@pytest.mark.parametrize(("worker", "path"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_cannot_be_read_is_told(worker: Json, path: str | None) -> None:
    found = start_param_problems(ClusterContext(cluster=ray_cluster(group(), group("second", **worker))))
    assert [problem.path for problem in found] == ([f"spec.workerGroupSpecs[1].{path}"] if path else [])


PLAIN = st.text(st.sampled_from("abcXYZ019-_./:=,@$%+"), min_size=1, max_size=20)
NAMES = st.from_regex(r"[a-z]{1,8}(-[a-z]{1,8}){0,2}", fullmatch=True)
AMOUNTS = st.one_of(
    st.integers(1, 10**6),
    st.integers(1, 5000).map(lambda milli: f"{milli}m"),
    st.integers(1, 999).map(lambda n: f"{n}Gi"),
)
RESOURCES = st.dictionaries(
    st.sampled_from(
        ["cpu", "memory", "nvidia.com/gpu", "google.com/tpu", "gpu.deckhouse.io/a", "nvidia.com/gpu.shared", "x'y/z"]
    ),
    AMOUNTS,
)


@given(params=st.dictionaries(NAMES, PLAIN), limits=RESOURCES, resources=RESOURCES)
def test_a_shell_reads_from_the_command_what_was_put_in(params: dict[str, str], limits: Json, resources: Json) -> None:
    """Values stay as they are written, and JSON can be read again."""
    cluster = ray_cluster(
        group(
            template=template(limits),
            rayStartParams=params,
            resources={name: str(amount) for name, amount in resources.items()},
        )
    )
    words = shlex.split(command_of(worker_of(ClusterContext(cluster=cluster))))
    assert words[:2] == ["ray", "start"]
    read = dict(word.removeprefix("--").partition("=")[::2] for word in words[2:])
    for name, value in params.items():
        if value.lower() in ("true", "false") or name in ("block", "resources", "memory") or name.startswith("num-"):
            continue
        assert read[name] == value
    if "resources" in read and "resources" not in params:
        assert all(isinstance(amount, int | float) for amount in msgspec.json.decode(read["resources"]).values())
        assert "cpu" not in msgspec.json.decode(read["resources"])


@given(limits=RESOURCES)
def test_a_template_of_the_user_is_never_changed(limits: Json) -> None:
    cluster = ray_cluster(group(template=template(limits)), enableInTreeAutoscaling=True)
    before = msgspec.json.encode(cluster)
    context = ClusterContext(cluster=cluster)
    head_of(context)
    worker_of(context)
    assert msgspec.json.encode(cluster) == before
    assert isinstance(cluster, RayCluster)
