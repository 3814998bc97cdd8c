"""What every sample of a RayJob becomes, by the rules of KubeRay."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from integration.ray.expected.checks import GI, UNLIMITED, ExpectedCluster, Json, Pods

_RAY: Final = "registry.example.com/ray:2.60.0"
_HELLO: Final = """python -c "print('hello')\""""

_OWN_SCRIPT: Final = (
    'submit --address "http://$RAY_DASHBOARD_ADDRESS" --submission-id "$RAY_JOB_SUBMISSION_ID" -- python -c "print(1)"'
)


class ExpectedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a RayJob becomes on its way to success."""

    cluster: ExpectedCluster
    mode: str = "K8sJobMode"
    first: str = ""
    """Where it stays until somebody goes on with it."""
    then: Mapping[str, Any] = {}
    """What that one writes into the spec."""
    job_id: str = ""
    """If it is not made up."""
    options: str = ""
    """What `ray job submit` is told beside address and ID, or what is posted."""
    entrypoint: str = _HELLO
    posted: Mapping[str, Any] = {}
    """What Ray's dashboard is sent in HTTPMode."""
    submitter: Mapping[str, Any] = {}
    """The Job that submits, where it is not the usual one."""
    goes_after: float | None = None
    """Seconds after the end when the cluster goes; None: it stays."""


_CLUSTER: Final = ExpectedCluster(
    head=Pods(start=("--memory=2147483648", "--num-cpus=1")),
    groups={"small": Pods(start=("--memory=1073741824", "--num-cpus=1"))},
    desired=("400m", 3 * GI, "0", "0"),
    bounds=(1, 5),
    origin="RayJob",
)

_SUBMITTER_SIZE: Final = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "200Mi"}}

SIDECAR: Final[Json] = {"ray-job-submitter": {"image": _RAY, "resources": _SUBMITTER_SIZE}}
SUBMITTER: Final[Json] = {
    "spec": {
        "backoffLimit": 2,
        "template": {"spec": {"restartPolicy": "Never", "containers": SIDECAR}},
    }
}

JOBS: Final[Mapping[str, ExpectedJob]] = {
    "job-simple": ExpectedJob(
        cluster=_CLUSTER,
        entrypoint="python /home/ray/samples/count.py",
        options=(
            """--runtime-env-json '{"env_vars": {"COUNT_TO": "10"}, "pip": ["requests==2.32.3"]}'"""
            """ --metadata-json '{"owner": "vision", "run": "42"}' """
        ),
    ),
    "job-http": ExpectedJob(
        cluster=_CLUSTER,
        mode="HTTPMode",
        job_id="http-by-name",
        posted={"entrypoint": _HELLO, "submission_id": "http-by-name"},
    ),
    "job-interactive": ExpectedJob(
        cluster=_CLUSTER, mode="InteractiveMode", first="Waiting", then={"jobId": "by-hand"}, job_id="by-hand"
    ),
    "job-sidecar": ExpectedJob(
        cluster=ExpectedCluster(
            head=Pods(
                containers=("ray", "ray-job-submitter"),
                spec={"restartPolicy": "Never", "containers": SIDECAR},
            ),
            # The container that submits counts.
            desired=("500m", 200 * 1024**2, "0", "0"),
            origin="RayJob",
        ),
        mode="SidecarMode",
    ),
    "job-entrypoint-resources": ExpectedJob(
        cluster=ExpectedCluster(
            # Resources in escaped JSON are not understood, so no GPU is added to them.
            groups={
                "trainers": Pods(
                    start=(
                        "--memory=68719476736",
                        "--num-cpus=8",
                        r'--resources="{\"trainer\": 4, \"note\": 1}"',
                    )
                )
            },
            desired=("8", 64 * GI, "1", "0"),
            bounds=(0, UNLIMITED),
            origin="RayJob",
        ),
        entrypoint="python /home/ray/samples/train.py",
        options=(
            """--entrypoint-num-cpus 0.5 --entrypoint-num-gpus 1"""
            """ --entrypoint-resources '{"trainer": 1, "note": 0.25}' """
        ),
    ),
    "job-own-submitter": ExpectedJob(
        cluster=_CLUSTER,
        submitter={
            "spec": {
                "backoffLimit": 2,
                "template": {
                    "metadata": {"labels": {"role": "submitter"}},
                    "spec": {
                        "containers": {
                            "submit": {
                                "image": "registry.example.com/submitter:1",
                                "command": ["sh", "-c"],
                                "args": [_OWN_SCRIPT],
                                "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
                            }
                        }
                    },
                },
            }
        },
    ),
    "job-deletion-pair": ExpectedJob(cluster=_CLUSTER, goes_after=0),
    "job-kueue": ExpectedJob(cluster=_CLUSTER, first="Suspended", then={"suspend": False}, goes_after=0),
    "job-shutdown": ExpectedJob(
        cluster=_CLUSTER,
        entrypoint='python -c "import ray; ray.init(); print(ray.cluster_resources())"',
        submitter={"spec": {"backoffLimit": 0}},
        goes_after=10,
    ),
    "job-deletion-rules": ExpectedJob(cluster=_CLUSTER),
}

WITHOUT_WORKERS: Final = replace(
    _CLUSTER, groups={"small": Pods(count=0)}, desired=("200m", 2 * GI, "0", "0"), bounds=(0, 0)
)
