"""What every sample of a RayService becomes, by the rules of KubeRay."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from integration.ray.expected.checks import ABSENT, GI, PORTS, ExpectedCluster, Pods
from integration.ray.expected.cluster_pods import autoscaler_objects

_ANSWERS: Final[Mapping[str, tuple[str, str]]] = {
    "Ready": ("True", "NonZeroServeEndpoints"),
    "UpgradeInProgress": ("False", "NoPendingCluster"),
    "ClusterUpToDate": ("True", "UpToDate"),
}
_SERVES: Final[Mapping[str, Any]] = {"ray.io/serve": "true"}
_FRUITS: Final = {"fruits": {"Stand": "HEALTHY"}}


class ExpectedService(msgspec.Struct, frozen=True, kw_only=True):
    """What a RayService becomes. `{name}` stands for its own name, in parts of its cluster for the cluster's."""

    cluster: ExpectedCluster | None
    endpoints: int = 0
    applications: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=lambda: _FRUITS)
    """Deployments and how they are, by application."""
    service: str = "{name}-serve-svc"
    serve: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"spec": {"type": "ClusterIP"}})
    ports: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=lambda: {"serve": (8000, 8000)})
    """Ports of the Service of Serve, and where they lead."""
    gateway: str = ""
    """The class of the Gateway, if requests are divided."""
    status: str = "Running"
    conditions: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=lambda: _ANSWERS)


_CLUSTER: Final = ExpectedCluster(
    head=Pods(start=("--memory=2147483648", "--num-cpus=1"), labels=_SERVES),
    groups={"small": Pods(start=("--memory=1073741824", "--num-cpus=1"), labels=_SERVES)},
    desired=("400m", 3 * GI, "0", "0"),
    bounds=(1, 5),
    origin="RayService",
)

SERVICES: Final[Mapping[str, ExpectedService]] = {
    "service-simple": ExpectedService(cluster=_CLUSTER, endpoints=2),
    "service-other-port": ExpectedService(
        cluster=ExpectedCluster(head=Pods(labels=_SERVES), ports={**PORTS, "serve": 9000}, origin="RayService"),
        endpoints=1,
        applications={"fruits": {}},
        ports={"serve": (9000, 9000)},
    ),
    "service-own-serve-service": ExpectedService(
        cluster=_CLUSTER,
        endpoints=2,
        service="fruits",
        serve={
            "metadata": {"labels": {"tier": "front"}, "annotations": {"example.com/zone": "a"}},
            "spec": {"type": "LoadBalancer"},
        },
        ports={"serve": (80, 8000)},  # its other port is none of Serve's
    ),
    "service-without-serve-on-head": ExpectedService(
        cluster=replace(
            _CLUSTER,
            head=Pods(start=("--memory=2147483648", "--num-cpus=1"), labels={"ray.io/serve": "false"}),
        ),
        endpoints=1,
    ),
    "service-redis": ExpectedService(
        cluster=ExpectedCluster(
            head=Pods(
                start=("--num-cpus=0", "--redis-password=$REDIS_PASSWORD"),
                env={
                    "RAY_REDIS_ADDRESS": "redis:6379",
                    "REDIS_PASSWORD": "in-clear",
                    "RAY_external_storage_namespace": re.compile("^[0-9a-f-]{36}$"),  # the cluster's UID
                },
                annotations={"ray.io/ft-enabled": "true"},
                labels=_SERVES,
            ),
            groups={
                "small": Pods(
                    count=2,
                    env={"RAY_gcs_rpc_server_reconnect_timeout_s": "600", "REDIS_PASSWORD": ABSENT},
                    labels=_SERVES,
                )
            },
            bounds=(2, 2),
            finalizers=("ray.io/gcs-ft-redis-cleanup-finalizer",),
            origin="RayService",
        ),
        endpoints=3,
    ),
    "service-incremental-upgrade": ExpectedService(
        cluster=replace(
            _CLUSTER,
            head=Pods(
                start=("--memory=2147483648", "--no-monitor", "--num-cpus=1"),
                containers=("ray", "autoscaler"),
                labels=_SERVES,
            ),
            beside={
                **autoscaler_objects(),
                "Service/{name}-serve-svc": {
                    "spec": {
                        "type": "ClusterIP",
                        "selector": {"ray.io/cluster": "{name}", "ray.io/serve": "true"},
                        "ports": {"serve": {"port": 8000}},
                    }
                },
            },
        ),
        endpoints=2,
        gateway="istio",
    ),
    "service-one-gpu": ExpectedService(
        cluster=ExpectedCluster(
            head=Pods(labels=_SERVES),
            groups={
                "gpus": Pods(
                    start=("--memory=17179869184", "--num-cpus=4", "--num-gpus=1"),
                    # The API server adds two for nodes that are not ready.
                    spec={
                        "tolerations": [
                            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                            {},
                            {},
                        ]
                    },
                    labels=_SERVES,
                )
            },
            desired=("4", 16 * GI, "1", "0"),
            bounds=(1, 10),
            origin="RayService",
        ),
        endpoints=2,
        applications={"pictures": {"Model": "HEALTHY"}},
    ),
    "service-language-model": ExpectedService(
        cluster=ExpectedCluster(
            head=Pods(start=("--num-cpus=0", "--num-gpus=0"), labels=_SERVES),
            groups={
                "gpus": Pods(
                    start=("--memory=137438953472", "--num-cpus=32", "--num-gpus=4"),
                    env={"HF_TOKEN": {"secretKeyRef": {"name": "models", "key": "token"}}},
                    labels=_SERVES,
                )
            },
            ports={"metrics": 8080, "serve": 8000},
            desired=("32", 128 * GI, "4", "0"),
            bounds=(1, 1),
            origin="RayService",
        ),
        endpoints=2,
        applications={"llm": {}},
    ),
    "service-suspended": ExpectedService(
        cluster=None,
        status="",
        conditions={
            "Ready": ("False", "SuspendComplete"),
            "UpgradeInProgress": ("False", "SuspendComplete"),
            "Suspending": ("False", "SuspendComplete"),
            "Suspended": ("True", "SuspendComplete"),
        },
    ),
}
