"""Pods of a GPU node's operands on an API server without a kubelet: the test says whether they are ready."""

from datetime import datetime

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import AlreadyExists
from gpu_control_plane.kube.times import utc_now
from integration.kinds import Pod
from integration.rbac import ServiceAccount

OURS = "gpu-control-plane"


async def allow_pods(client: Client, namespace: str = NAMESPACE) -> None:
    """Create the service account that Pods run as; the controller-manager, which would, does not run here."""
    try:
        await client.create(ServiceAccount, {"metadata": {"name": "default"}}, namespace)
    except AlreadyExists:
        return


class Operands:
    """The pods of one node, in a namespace; `kubelet` may write their status, where that is not `client`."""

    def __init__(self, client: Client, node: str, *, namespace: str = NAMESPACE, kubelet: Client | None = None) -> None:
        self._client = client
        self._kubelet = kubelet or client
        self._node = node
        self._namespace = namespace
        self._running: set[str] = set()

    def name(self, component: str) -> str:
        return f"{component}-{self._node}"

    async def start(
        self,
        component: str,
        *,
        app: str | None = None,
        chart: str | None = None,
        since: datetime | None = None,
    ) -> None:
        """A pod of our chart that is ready, with `app` one of NVIDIA's stack, with `chart` of a chart of its own."""
        await self.create(component, app=app, chart=chart)
        await self.is_ready(component, True, since=since)

    async def create(
        self, component: str, *, app: str | None = None, chart: str | None = None, owner: str | None = "DaemonSet"
    ) -> None:
        """The same, without a status; `owner` is the kind that seems to have made it."""
        ours = {"app.kubernetes.io/name": OURS, "app.kubernetes.io/component": component}
        labels = {"app": app} if app else {"app.kubernetes.io/name": chart} if chart else ours
        spec = {
            "nodeName": self._node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "any"}],
        }
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": component, "uid": component, "controller": True}
        owners = [reference] if owner is not None else []
        metadata = {"name": self.name(component), "labels": labels, "ownerReferences": owners}
        await self._client.create(Pod, {"metadata": metadata, "spec": spec}, self._namespace)
        self._running.add(component)

    async def is_ready(self, component: str, ready: bool, since: datetime | None = None) -> None:
        moment = (since or utc_now()).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": moment}],
        }
        name = self.name(component)
        await self._kubelet.patch(Pod, name, {"status": status}, namespace=self._namespace, subresource="status")

    async def stop(self, component: str) -> None:
        self._running.discard(component)
        await self._client.delete(Pod, self.name(component), self._namespace)

    async def stop_all(self) -> None:
        """Leave nothing behind: an operand that runs on any node is expected on all."""
        for component in sorted(self._running):
            await self.stop(component)
