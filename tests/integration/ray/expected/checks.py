"""What a sample should become, and how that is compared with what is on the API server.

Expectations are written by the rules of KubeRay, as users and their tools know them; nothing here is worked out by the
operator's own code. They name what matters: what an object has beyond them does not count, but every object does.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.kube import Client, Object, Resource
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.ray.cluster.children import CERTIFICATE_KINDS, KINDS, OwnedRoute
from gpu_control_plane.ray.owned import OwnedJob, RayPod
from gpu_control_plane.ray.scheduling.scheduler_plugins import CoschedulingPodGroup
from gpu_control_plane.ray.scheduling.volcano import VolcanoPodGroup

Json = dict[str, Any]

GI: Final = 1024**3
UNLIMITED: Final = 2147483647
"""Workers of a group that has no bound."""
FOREIGN: Final[tuple[type[Object], ...]] = (*CERTIFICATE_KINDS, OwnedRoute, VolcanoPodGroup, CoschedulingPodGroup)
"""Kinds that the API server has only where other programs brought them."""
BESIDE: Final[tuple[type[Object], ...]] = (*KINDS, *FOREIGN, OwnedJob)
"""Every kind of object that a cluster may have beside its pods."""
PORTS: Final[Mapping[str, int]] = {
    "client": 10001,
    "dashboard": 8265,
    "gcs-server": 6379,
    "metrics": 8080,
    "serve": 8000,
}
"""Ports of a head whose container names none."""
READY: Final[Mapping[str, tuple[str, str]]] = {
    "HeadPodReady": ("True", "HeadPodRunningAndReady"),
    "RayClusterProvisioned": ("True", "AllPodRunningAndReadyFirstTime"),
    "Valid": ("True", "Valid"),
    "WorkersReady": ("True", "AllWorkersReady"),
}
POOL_SERVES: Final = {"CapacitySufficient": ("True", "PoolsCouldServe")}
HEADLESS: Final[Json] = {"spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "type": "ClusterIP"}}

_OPEN_FILES: Final = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}"
_BASE: Final = ("--block", "--dashboard-agent-listen-port=52365", "--metrics-export-port=8080")
_CLUSTER, _GROUP, _TYPE = "ray.io/cluster", "ray.io/group", "ray.io/node-type"
_REPLICA: Final = "ray.io/worker-group-replica"
_MADE: Final = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
_WITH_MADE: Final = frozenset({"ServiceAccount", "Role", "RoleBinding", "Ingress", "NetworkPolicy", "Route"})


class Absent:
    """A field that there should not be."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = Absent()


class Pods(msgspec.Struct, frozen=True, kw_only=True):
    """The head, or the workers of a group."""

    count: int = 1
    hosts: int = 1
    """Pods of one replica."""
    start: tuple[str, ...] = ()
    """Flags of `ray start` beyond those that every head or worker has."""
    before: str = ""
    """What the user's command and arguments become before it."""
    own: Json | None = None
    """Command and arguments where the user's stay."""
    containers: tuple[str, ...] = ("ray",)
    init: tuple[str, ...] = ()
    """Init containers of a head; of workers those before the one that waits for the head."""
    first_init: tuple[str, ...] = ()
    env: Mapping[str, Any] = {}
    ray: Mapping[str, Any] = {}
    """What the Ray container has."""
    spec: Mapping[str, Any] = {}
    labels: Mapping[str, Any] = {}
    annotations: Mapping[str, Any] = {}


class ExpectedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """What a RayCluster becomes. `{name}` stands for its name in names of objects, `{namespace}` for its namespace."""

    head: Pods | None = Pods()
    groups: Mapping[str, Pods] = {}
    service: str = "{name}-head-svc"
    head_service: Mapping[str, Any] = msgspec.field(default_factory=lambda: HEADLESS)
    ports: Mapping[str, int] = msgspec.field(default_factory=lambda: PORTS)
    beside: Mapping[str, Mapping[str, Any]] = {}
    """All other objects, by kind and name."""
    desired: tuple[str, int, str, str] = ("0", 0, "0", "0")
    """CPUs, bytes, GPUs and TPUs of all pods."""
    bounds: tuple[int, int] = (0, 0)
    """Fewest and most workers."""
    state: str = "ready"
    conditions: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=lambda: READY)
    finalizers: tuple[str, ...] = ()
    older_ray: bool = False
    """Ray has no one address for its health yet."""
    origin: str = "RayCluster"


async def listed(client: Client, resource: Resource, namespace: str, selector: str = "") -> list[Json]:
    """Objects as the API server has them, with every field."""
    params = {"labelSelector": selector} if selector else {}
    call = Call(
        method="GET",
        path=resource.path(namespace),
        verb="list",
        resource=resource.qualified_name,
        params=params,
    )
    items: list[Json] = msgspec.json.decode(await client.transport.send(call))["items"]
    return items


async def check_cluster(client: Client, cluster: Json, expected: ExpectedCluster) -> None:
    """Compare a RayCluster, its pods and all that is beside them with what is expected."""
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
    pods = await listed(client, RayPod.resource, namespace, f"{_CLUSTER}={name}")
    pods = [pod for pod in pods if is_made_by(pod, cluster) and "deletionTimestamp" not in pod["metadata"]]
    beside = {}
    for kind in BESIDE:
        for item in await listed(client, kind.resource, namespace):
            labels = item["metadata"].get("labels", {})
            if is_made_by(item, cluster) or (
                labels.get(_CLUSTER) == name and not item["metadata"].get("ownerReferences")
            ):
                beside[f"{kind.resource.kind}/{item['metadata']['name']}"] = item
    view = _View(cluster=cluster, expected=expected, pods=pods)
    view.check_status(beside)
    view.check_objects(beside)
    view.check_pods()


def is_made_by(item: Json, owner: Json) -> bool:
    return any(
        reference.get("controller") and reference["uid"] == owner["metadata"]["uid"]
        for reference in item["metadata"].get("ownerReferences", ())
    )


def conditions_of(item: Json) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in item["status"]["conditions"]}


def check(held: object, expected: object, what: str) -> None:
    """Whether all that is expected is there."""
    found = list(_differences(by_name(held), expected, what))
    assert not found, "\n".join(found)


def same(held: object, expected: object, what: str) -> None:
    """Whether it is that, and nothing beyond it."""
    assert held == expected, f"{what}: {held!r}, and should be {expected!r}"


def by_name(held: Any, key: str = "") -> Any:
    """Lists of named things as maps, and variables as their values, so that tables need no order for them."""
    if isinstance(held, dict):
        return {name: by_name(value, name) for name, value in held.items()}
    if not isinstance(held, list):
        return held
    items = [by_name(item) for item in held]
    names = [item.get("name") for item in items if isinstance(item, dict)]
    if not names or None in names or len(set(names)) < len(items):
        return items
    if key == "env":
        return {item["name"]: item.get("valueFrom", item.get("value", "")) for item in items}
    return {item["name"]: item for item in items}


def _differences(held: Any, expected: Any, path: str) -> Iterable[str]:
    if isinstance(expected, Mapping) and isinstance(held, Mapping):
        for name, value in expected.items():
            if value is ABSENT:
                if name in held:
                    yield f"{path}.{name} is {held[name]!r}, and should not be there"
            elif name not in held:
                yield f"{path}.{name} is not there, and should be {value!r}"
            else:
                yield from _differences(held[name], value, f"{path}.{name}")
    elif isinstance(expected, list) and isinstance(held, list) and len(expected) == len(held):
        for index, pair in enumerate(zip(held, expected, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif isinstance(expected, re.Pattern):
        if not (isinstance(held, str) and expected.search(held)):
            yield f"{path} is {held!r}, and should be like {expected.pattern}"
    elif held != expected:
        yield f"{path} is {held!r}, and should be {expected!r}"


class _View:
    """One cluster, with what belongs to it."""

    def __init__(self, *, cluster: Json, expected: ExpectedCluster, pods: list[Json]) -> None:
        self.cluster = cluster
        self.expected = expected
        self.pods = pods
        self.name: str = cluster["metadata"]["name"]
        self.namespace: str = cluster["metadata"]["namespace"]
        self.service = self.filled(expected.service)
        self.host = f"{self.service}.{self.namespace}.svc.cluster.local"

    def filled(self, value: Any) -> Any:
        """With the names that are made up by the API server or the operator."""
        if isinstance(value, str):
            return value.replace("{name}", self.name).replace("{namespace}", self.namespace)
        if isinstance(value, Mapping):
            return {self.filled(key): self.filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        return value

    # Status.

    def check_status(self, beside: Mapping[str, Json]) -> None:
        expected, status = self.expected, self.cluster["status"]
        cpus, memory, gpus, tpus = expected.desired
        workers = sum(group.count for group in expected.groups.values())
        fewest, most = expected.bounds
        numbers = {
            "desiredCPU": cpus,
            "desiredMemory": str(memory),
            "desiredGPU": gpus,
            "desiredTPU": tpus,
            "desiredWorkerReplicas": workers,
            "availableWorkerReplicas": workers,
            "readyWorkerReplicas": workers,
            "minWorkerReplicas": fewest,
            "maxWorkerReplicas": most,
        }
        same({key: status.get(key, 0) for key in numbers}, numbers, "numbers")
        same(status.get("state"), expected.state, "state")
        same(conditions_of(self.cluster), expected.conditions, "conditions")
        same(status["observedGeneration"], self.cluster["metadata"]["generation"], "observedGeneration")
        check(status["stateTransitionTimes"], {expected.state: re.compile("Z$")}, "stateTransitionTimes")
        same(tuple(self.cluster["metadata"].get("finalizers", ())), expected.finalizers, "finalizers")
        service = beside[f"Service/{self.service}"]["spec"]
        reached = {port["name"]: str(port.get("nodePort") or port["port"]) for port in service["ports"]}
        same(status["endpoints"], reached, "endpoints")
        head = status["head"]
        same(head["serviceName"], self.service, "head.serviceName")
        if expected.head is not None:
            address = "10.1.2.3" if service["clusterIP"] == "None" else service["clusterIP"]
            check(head, {"podIP": "10.1.2.3", "serviceIP": address, "podName": re.compile("-head-")}, "head")

    # What is beside the pods.

    def check_objects(self, beside: Mapping[str, Json]) -> None:
        expected = self.filled(self.expected.beside)
        same(sorted(beside), sorted({*expected, f"Service/{self.service}"}), "objects beside the pods")
        for name, item in beside.items():
            kind = name.partition("/")[0]
            wanted = expected.get(name, self.filled(self.expected.head_service))
            check(item, wanted, name)
            if wanted.get("metadata", {}).get("ownerReferences") is not ABSENT:
                same(is_made_by(item, self.cluster), True, f"{name} belongs to the cluster")
            labels = {_CLUSTER: self.name} if kind in {*_WITH_MADE, "Secret", "PersistentVolumeClaim"} else {}
            check(item["metadata"].get("labels", {}), labels | (_MADE if kind in _WITH_MADE else {}), f"{name} labels")
        service = beside[f"Service/{self.service}"]
        same({port["name"]: port["port"] for port in service["spec"]["ports"]}, self.expected.ports, "ports")
        selector = {_CLUSTER: self.name, _TYPE: "head", "ray.io/identifier": f"{self.name}-head", **_MADE}
        same(service["spec"]["selector"], selector, "selector")
        check(service["metadata"]["labels"], selector, f"{self.service} labels")

    # Pods.

    def check_pods(self) -> None:
        held: dict[str, list[Json]] = {}
        for pod in self.pods:
            held.setdefault(pod["metadata"]["labels"][_GROUP], []).append(pod)
        groups = {"headgroup": self.expected.head, **self.expected.groups}
        wanted = {group: pods.count for group, pods in groups.items() if pods is not None and pods.count}
        same({group: len(pods) for group, pods in held.items()}, wanted, "pods")
        for group, pods in held.items():
            expected = groups[group] or Pods()
            if group != "headgroup":
                self._check_replicas(pods, group, expected)
            for pod in pods:
                self._check_pod(pod, group, expected)

    def _check_replicas(self, pods: list[Json], group: str, expected: Pods) -> None:
        """Indices are those from 0 on, of replicas and of the hosts in each; a host alone has no index."""
        hosts = [str(host) for host in range(expected.hosts)] if expected.hosts > 1 else [""]
        wanted = [(str(index), host) for index in range(expected.count // expected.hosts) for host in hosts]
        labels = [pod["metadata"]["labels"] for pod in pods]
        held = [(each[f"{_REPLICA}-index"], each.get("ray.io/replica-host-index", "")) for each in labels]
        same(sorted(held), wanted, f"indices of {group}")
        names = {(each[f"{_REPLICA}-index"], each.get(f"{_REPLICA}-name", "")) for each in labels}
        pattern = rf"^{group}-[a-z0-9]{{5}}$" if expected.hosts > 1 else "^$"
        check(sorted(name for _, name in names), [re.compile(pattern)] * (expected.count // expected.hosts), "replicas")

    def _check_pod(self, pod: Json, group: str, expected: Pods) -> None:
        head, name = group == "headgroup", pod["metadata"]["name"]
        kind = "head" if head else "worker"
        prefix = f"{self.name}-head-" if head else f"{self.name}-{group}-worker-"
        check(name, re.compile(f"^{prefix}[a-z0-9]{{5}}$"), "name of a pod")
        labels = {
            "ray.io/is-ray-node": "yes",
            _CLUSTER: self.name,
            _TYPE: kind,
            _GROUP: group,
            "ray.io/identifier": f"{self.name}-{kind}",
            **_MADE,
            **({"ray.io/serve": re.compile("")} if self.expected.origin == "RayService" else {"ray.io/serve": ABSENT}),
        }
        check(pod["metadata"]["labels"], {**labels, **expected.labels}, f"labels of {name}")
        check(pod["metadata"]["annotations"], self.filled(expected.annotations), f"annotations of {name}")
        spec = pod["spec"]
        same(tuple(each["name"] for each in spec["containers"]), expected.containers, f"containers of {name}")
        ours = () if head else ("wait-gcs-ready",)
        init = tuple(each["name"] for each in spec.get("initContainers", ()))
        same(init, (*expected.first_init, *expected.init, *ours), f"init containers of {name}")
        check(spec, self.filled(expected.spec), name)
        ray = by_name(spec)["containers"][expected.containers[0]]
        check(ray, self._command(expected, head=head), f"Ray of {name}")
        check(ray["env"], self._environment(expected, head=head), f"env of {name}")
        check(ray, self._probes(head=head), f"probes of {name}")
        check(ray, self.filled(expected.ray), f"Ray of {name}")
        if not head:
            waits = by_name(spec)["initContainers"]["wait-gcs-ready"]
            asks = re.compile(re.escape(f"ray health-check --address {self.host}:6379 "))
            check(waits["args"], [asks], f"wait-gcs-ready of {name}")

    def _start(self, expected: Pods, *, head: bool) -> str:
        beside = () if head else (f"--address={self.host}:6379",)
        host = ("--dashboard-host=0.0.0.0",) if head else ()
        flags = sorted({*_BASE, *beside, *host, *expected.start}, key=lambda flag: flag.partition("=")[0])
        return f"ray start {'--head ' if head else ''}{''.join(f' {flag} ' for flag in flags)}"

    def _command(self, expected: Pods, *, head: bool) -> Json:
        start = self._start(expected, head=head)
        told = {"env": {"KUBERAY_GEN_RAY_START_CMD": start}}
        if expected.own is not None:
            return {**expected.own, **told}
        return {"command": ["/bin/bash", "-c", "--"], "args": [f"{expected.before}{_OPEN_FILES}; {start}"], **told}

    def _environment(self, expected: Pods, *, head: bool) -> Json:
        of_service = {
            "RAY_timeout_ms_task_wait_for_death_info": "0",
            "RAY_gcs_server_request_timeout_seconds": "5",
            "RAY_SERVE_KV_TIMEOUT_S": "5",
        }
        tags = re.compile(f"^kuberay_version=.+;kuberay_crd={self.expected.origin}$")
        return {
            "RAY_CLUSTER_NAME": {"fieldRef": {"fieldPath": f"metadata.labels['{_CLUSTER}']"}},
            "RAY_CLUSTER_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            "RAY_CLOUD_INSTANCE_ID": {"fieldRef": {"fieldPath": "metadata.name"}},
            "RAY_NODE_TYPE_NAME": {"fieldRef": {"fieldPath": f"metadata.labels['{_GROUP}']"}},
            "RAY_PORT": "6379",
            "RAY_ADDRESS": "127.0.0.1:6379" if head else f"{self.host}:6379",
            "FQ_RAY_IP": ABSENT if head else self.host,
            "RAY_IP": ABSENT if head else self.service,
            "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
            "RAY_USAGE_STATS_EXTRA_TAGS": tags if head else ABSENT,
            "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
            **(of_service if self.expected.origin == "RayService" else dict.fromkeys(of_service, ABSENT)),
            **self.filled(expected.env),
        }

    def _probes(self, *, head: bool) -> Json:
        timeout = 5 if head else 2
        asked: Json = {"httpGet": {"path": "/api/healthz", "port": 52365}}
        raylet = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
        gcs = "wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success"
        serve = "wget --tries 1 -T 10 -q -O- http://localhost:8000/-/healthz | grep success"
        if self.expected.older_ray:
            asked = {"exec": {"command": ["bash", "-c", f"{raylet} && {gcs}" if head else raylet]}}
        usual = {"timeoutSeconds": timeout, "periodSeconds": 5, "successThreshold": 1}
        live = {**asked, **usual, "initialDelaySeconds": 30, "failureThreshold": 120}
        ready = {**asked, **usual, "initialDelaySeconds": 10, "failureThreshold": 10}
        if self.expected.origin == "RayService" and not head:
            ready = {**ready, "exec": {"command": ["bash", "-c", f"{raylet} && {serve}"]}, "failureThreshold": 1}
            ready.pop("httpGet", None)
        return {"livenessProbe": live, "readinessProbe": ready}
