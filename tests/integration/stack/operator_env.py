"""A cluster with simulated kubelets and the operator: GPU nodes of any kind, policies, and their objects."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel, PodLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube import Client, Condition, Object, Resource, Runtime, Selection, load_config
from gpu_control_plane.kube.config import Config
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.events import Event
from gpu_control_plane.local import Cluster
from gpu_control_plane.operator.controller import OperatorSettings, build
from gpu_control_plane.operator.stack.live import CORE_KINDS, Live
from gpu_control_plane.operator.upgrade.controller import UpgradeTiming
from gpu_control_plane.operator.views import DaemonSet
from waiting import until, until_async, until_still

NAMESPACE = "gpu-operands"
IMAGES = {"VALIDATOR_IMAGE": "example.com/validator:v1"}

_CONTROLLERS = ("stack", "stack-status")


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


def gpu_node(
    name: str,
    *,
    system: tuple[str, str] = ("ubuntu", "24.04"),
    kernel: str = "6.8.0-60-generic",
    runtime: str = "containerd://2.1.4",
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A Node with the labels of Node Feature Discovery, whose kubelet KWOK simulates."""
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    return {
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "feature.node.kubernetes.io/pci-10de.present": "true",
                str(NodeLabel.OS_ID): system[0],
                str(NodeLabel.OS_VERSION): system[1],
                str(NodeLabel.OS_MAJOR): system[1].split(".", 1)[0],
                str(NodeLabel.KERNEL): kernel,
                **(labels or {}),
            },
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "nodeInfo": {
                **dict.fromkeys(("machineID", "systemUUID", "bootID", "osImage", "kubeProxyVersion"), ""),
                "kernelVersion": kernel,
                "containerRuntimeVersion": runtime,
                "kubeletVersion": "v1.36.3",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


class OperatorEnv:
    """What a test does to the cluster, and what it sees."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self.client = client
        self.cluster = cluster
        self._running: asyncio.Task[None] | None = None
        self._special = False
        """Whether the operator runs with settings that only one test needs."""
        self.runtime: Runtime | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, cluster: Cluster) -> AsyncIterator[Self]:
        async with Client(load_config(cluster.kubeconfig)) as client:
            env = cls(client, cluster)
            await env._ensure_namespace()
            try:
                yield env
            finally:
                await env.stop()
                await env.clear()

    async def start(self, config: Config | None = None, upgrade_timing: UpgradeTiming | None = None) -> Runtime:
        """Start the operator; it leads at once. `config` may name a proxy in front of the API server."""
        self._special = config is not None or upgrade_timing is not None
        self.runtime = Runtime(
            "operator", config=config or load_config(self.cluster.kubeconfig), elect=False, status_port=None,
            identity=f"test-{secrets.token_hex(2)}",
        )  # fmt: skip
        timing = upgrade_timing or UpgradeTiming()
        build(self.runtime, OperatorSettings(namespace=NAMESPACE, images=IMAGES, upgrade_timing=timing))
        self._running = asyncio.create_task(self.runtime.run())
        return self.runtime

    async def resume(self) -> None:
        """Start the operator with the usual settings, if a test has left it stopped or with special ones."""
        if self._special:
            await self.kill()
        if self._running is None:
            await self.start()

    async def stop(self) -> None:
        if self._running is not None and self.runtime is not None:
            self.runtime.stop()
            await self._running
            self._running = self.runtime = None

    async def kill(self) -> None:
        """End the operator as in a crash."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))
            self._running = self.runtime = None

    async def nodes(self, *manifests: dict[str, Any]) -> None:
        await asyncio.gather(*(self.client.create(Node, manifest) for manifest in manifests))

    async def policy(self, spec: Mapping[str, Any], name: str = "cluster-policy") -> StoredClusterPolicy:
        return await self.client.create(StoredClusterPolicy, {"metadata": {"name": name}, "spec": dict(spec)})

    async def patch_policy(self, spec: Mapping[str, Any], name: str = "cluster-policy") -> StoredClusterPolicy:
        return await self.client.patch(StoredClusterPolicy, name, {"spec": dict(spec)})

    async def get_policy(self, name: str = "cluster-policy") -> StoredClusterPolicy:
        return await self.client.get(StoredClusterPolicy, name)

    async def state(self, wanted: str, name: str = "cluster-policy", within: float = 120) -> StoredClusterPolicy:
        """Wait until a policy is in this state, of its present generation."""

        seen = await self.get_policy(name)

        async def there() -> bool:
            nonlocal seen
            seen = await self.get_policy(name)
            return seen.status.state == wanted and seen.status.observed_generation == seen.metadata.generation

        await until_async(there, within=within, saying=f"{name} is not {wanted}")
        return seen

    async def daemonsets(self) -> dict[str, DaemonSet]:
        found = await self.client.list(DaemonSet, Selection(namespace=NAMESPACE))
        return {item.name: item for item in found}

    async def pods(self) -> list[Pod]:
        return await self.client.list(Pod, Selection(namespace=NAMESPACE))

    async def node(self, name: str) -> Node:
        return await self.client.get(Node, name)

    async def held(self, kind: type[Live]) -> dict[str, Live]:
        """The stack's objects of a kind, by name."""
        namespace = NAMESPACE if kind.resource.namespaced else None
        found = await self.client.list(kind, Selection(namespace=namespace, labels=str(PodLabel.OPERAND)))
        return {item.name: item for item in found}

    async def next_status(self, seen: StoredClusterPolicy) -> StoredClusterPolicy:
        """Wait until the status of a policy has changed."""
        now = seen

        async def other() -> bool:
            nonlocal now
            now = await self.get_policy(seen.name)
            return now.status != seen.status

        await until_async(other, within=60, saying=f"{seen.name} still says {seen.status}")
        return now

    async def events(self, reason: str, name: str = "cluster-policy") -> list[str]:
        """The notes of a policy's Events with this reason."""
        uid = (await self.get_policy(name)).metadata.uid
        found = await self.client.list(Event, Selection(namespace="default"))
        return [item.note for item in found if item.regarding and item.regarding.uid == uid and item.reason == reason]

    async def event(self, reason: str, *words: str, name: str = "cluster-policy") -> str:
        """Wait for an Event with this reason and these words in it."""
        seen: list[str] = []

        async def there() -> bool:
            nonlocal seen
            seen = [note for note in await self.events(reason, name) if all(word in note for word in words)]
            return bool(seen)

        await until_async(there, within=60, saying=f"no Event {reason} says {words}")
        return seen[0]

    async def condition(self, wanted: str, reason: str, name: str = "cluster-policy") -> Condition:
        """Wait until the condition of this type has this reason."""
        seen: list[Condition] = []

        async def there() -> bool:
            nonlocal seen
            policy = await self.get_policy(name)
            seen = [held for held in policy.status.conditions if (held.type, held.reason) == (wanted, reason)]
            return bool(seen)

        await until_async(there, within=60, saying=f"{wanted} of {name} is not {reason}")
        return seen[0]

    def requests(self, *verbs: str) -> dict[str, int]:
        """The requests of these verbs that the operator has sent since it was started, by verb and resource."""
        assert self.runtime is not None
        samples = [sample for metric in self.runtime.metrics.api_requests.collect() for sample in metric.samples]
        return {
            f"{held.labels['verb']} {held.labels['resource']}": int(held.value)
            for held in samples
            if held.name.endswith("_total") and held.labels["verb"] in verbs
        }

    def writes(self) -> dict[str, int]:
        return self.requests("create", "update", "patch", "apply", "delete")

    async def at_rest(self) -> None:
        """Wait until the operator has reconciled everything and no reconcile is queued or delayed."""
        assert self.runtime is not None
        runtime = self.runtime

        def idle() -> bool:
            metrics = runtime.metrics
            waiting = [sample.value for metric in metrics.queue_depth.collect() for sample in metric.samples]
            working = [sample.value for metric in metrics.workers_busy.collect() for sample in metric.samples]
            return not any(waiting) and not any(working) and all(self.reconciles(name) for name in _CONTROLLERS)

        await until(idle, within=60, saying="the operator does not come to rest")
        # A reconcile that is rate-limited waits for its time outside of the queues.
        await until_still(self._all_reconciles, saying="the operator reconciles again and again")

    def _all_reconciles(self) -> int:
        assert self.runtime is not None
        samples = [sample for metric in self.runtime.metrics.reconciles.collect() for sample in metric.samples]
        return sum(int(sample.value) for sample in samples if sample.name.endswith("_total"))

    def reconciles(self, controller: str) -> int:
        """How often a controller has finished its work."""
        assert self.runtime is not None
        registry = self.runtime.metrics.registry
        return int(
            registry.get_sample_value("kube_reconciles_total", {"controller": controller, "result": "done"}) or 0
        )

    async def pod_of(self, daemonset: str, node: str | None = None) -> Pod:
        """A pod of a DaemonSet, that on a certain node or any."""
        found = [pod for pod in await self.pods() if pod.controller and pod.controller.name == daemonset]
        return next(pod for pod in found if node in (None, pod.spec.node_name))

    async def break_pod(self, pod: Pod, reason: str, message: str = "") -> None:
        """Let the containers of a pod fail, as a kubelet would report it."""
        waiting = {"waiting": {"reason": reason, "message": message or f"{reason} of a test"}}
        await self._set_health(pod, "False", ready=False, state=waiting)

    async def repair_pod(self, pod: Pod) -> None:
        await self._set_health(pod, "True", ready=True, state={"running": {}})

    async def _set_health(self, pod: Pod, word: str, *, ready: bool, state: Mapping[str, Any]) -> None:
        status = {
            "conditions": [{"type": kind, "status": word} for kind in ("Initialized", "ContainersReady", "Ready")],
            "containerStatuses": [
                {"name": held.name, "image": "", "imageID": "", "restartCount": 0, "ready": ready, "state": state}
                for held in pod.status.container_statuses
            ],
        }
        await self.client.patch(Pod, pod.name, {"status": status}, namespace=NAMESPACE, subresource="status")

    async def clear(self) -> None:
        """Delete everything, so that the next test finds the cluster empty. Pods are deleted before their nodes: a pod
        without a node is deleted only when the pod garbage collector runs."""
        for kind in (StoredClusterPolicy, StoredNVIDIADriver):
            for item in await self.client.list(kind):
                await self.client.delete(kind, item.name)
        await until_async(self.swept, within=120, saying="operands stay behind")
        await asyncio.gather(*(self._gone(Node, node.name, None) for node in await self.client.list(Node)))

    async def swept(self) -> bool:
        """Sweep again until nothing is left: the operator may still write what it has not seen deleted."""
        await self.sweep()
        return await self.empty()

    async def sweep(self) -> None:
        """Delete what Kubernetes would delete anyway, after a while."""
        held = [(kind, name) for kind in CORE_KINDS for name in await self.held(kind)]
        await asyncio.gather(
            *(self._gone(kind, name, NAMESPACE if kind.resource.namespaced else None) for kind, name in held)
        )
        # Also pods that were orphaned on purpose.
        await asyncio.gather(*(self._gone(Pod, pod.name) for pod in await self.pods() if not pod.deleting))

    async def empty(self) -> bool:
        """Whether nothing is left of the stack."""
        if await self._any(Pod, Selection(namespace=NAMESPACE)):
            return False
        for kind in CORE_KINDS:
            namespace = NAMESPACE if kind.resource.namespaced else None
            if await self._any(kind, Selection(namespace=namespace, labels=str(PodLabel.OPERAND))):
                return False
        return True

    async def _any(self, kind: type[Object], selection: Selection) -> bool:
        async with contextlib.aclosing(self.client.pages(kind, selection, limit=1)) as pages:
            return bool((await anext(pages)).items)

    async def _gone(self, kind: type[Object], name: str, namespace: str | None = NAMESPACE) -> None:
        with contextlib.suppress(NotFound):
            await self.client.delete(kind, name, namespace)

    async def _ensure_namespace(self) -> None:
        try:
            await self.client.get(Namespace, NAMESPACE)
        except NotFound:
            await self.client.create(Namespace, {"metadata": {"name": NAMESPACE}})


def spec_of(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]
    return found


def merged(spec: dict[str, Any], **sections: Mapping[str, Any]) -> dict[str, Any]:
    """A spec with some fields of some sections changed."""
    return {**spec, **{name: {**spec.get(name, {}), **fields} for name, fields in sections.items()}}
