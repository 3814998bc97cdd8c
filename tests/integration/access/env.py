"""An API server with our admission policies, asked by dry runs in the name of anybody."""

import http.client
import itertools
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from blocking_wait import until
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.installation.policies import install_policies
from gpu_control_plane.local import Cluster
from gpu_control_plane.rules.access_index import INDEX_NAME, access_index

type Manifest = dict[str, Any]

NAMESPACES: dict[str, dict[str, str]] = {
    "research": {"team": "ml", "tier": "gold"},
    "vision": {"team": "vision"},
    "batch": {"tier": ""},
    "plain": {},
    "kube-system": {},
}
ACCOUNTS = ("default", "trainer")

_MARKER = "marker.test"


class Answer(msgspec.Struct, frozen=True):
    """What the API server says."""

    status: int
    reason: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def admitted(self) -> bool:
        return self.status < http.client.BAD_REQUEST

    @property
    def sentence(self) -> str:
        """The message without what the API server puts before it."""
        return self.message.partition(" denied request: ")[2] or self.message


class AccessEnv:
    """Requests to one API server over one connection."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._connections: dict[Path, http.client.HTTPSConnection] = {}
        self._markers = itertools.count()

    def prepare(self) -> None:
        """The policies, and namespaces with service accounts; nobody else would make them here."""
        for name, labels in {**NAMESPACES, NAMESPACE: {}}.items():
            body = {"metadata": {"name": name, "labels": labels}}
            self.request("POST", "/api/v1/namespaces", body)
            for account in ACCOUNTS:
                self.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": account}})
        install_policies(self.cluster.kubeconfig)
        self.pools([])

    def pools(self, pools: Iterable[GPUPool], retired: Mapping[str, str] | None = None) -> None:
        """Write the index of these pools, and return when the API server goes by it."""
        marker = f"{_MARKER}/m{next(self._markers)}"
        index = access_index(pools, {**(retired or {}), marker: "marker"})
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{INDEX_NAME}"
        body = {"metadata": {"name": INDEX_NAME, "namespace": NAMESPACE}, "data": index.data}
        assert self.request("PUT", path, body).admitted or self.request("POST", path.rpartition("/")[0], body).admitted
        until(lambda: not self.create("plain", pod(marker), user="nobody").admitted)

    def runtime_classes(self, *names: str) -> None:
        """A pod cannot name one that is not there."""
        for name in names:
            body = {"metadata": {"name": name}, "handler": name}
            assert self.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", body).admitted

    def create(
        self,
        namespace: str,
        body: Manifest,
        *,
        path: str = "/api/v1/namespaces/{}/pods",
        user: str | None = "alice",
        groups: Iterable[str] = (),
        identity: tuple[Path, Path] | None = None,
    ) -> Answer:
        """A dry run; `user` None is the administrator, `identity` a client certificate and its key."""
        headers = [("Impersonate-User", user)] if user is not None and identity is None else []
        # Groups are impersonated together with the user; all who may create pods here are of this one.
        headers += [("Impersonate-Group", group) for group in (*groups, _CREATORS)] if headers else []
        return self.request("POST", f"{path.format(namespace)}?dryRun=All", body, headers=headers, identity=identity)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Iterable[tuple[str, str]] = (),
        identity: tuple[Path, Path] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        response, said = self._send(method, path, body, headers, identity, content_type)
        warnings = tuple(value for name, value in response.getheaders() if name.lower() == "warning")
        if response.status < http.client.BAD_REQUEST:
            return Answer(response.status, warnings=warnings)
        return Answer(response.status, said.get("reason", ""), said.get("message", ""), warnings)

    def get(self, path: str) -> Manifest:
        """An object, as the administrator sees it."""
        return self._send("GET", path, None, (), None, "application/json")[1]

    def _send(  # noqa: PLR0917
        self,
        method: str,
        path: str,
        body: object,
        headers: Iterable[tuple[str, str]],
        identity: tuple[Path, Path] | None,
        content_type: str,
    ) -> tuple[http.client.HTTPResponse, Manifest]:
        admin = self.cluster.admin
        connection = self._connection(*(identity or (admin.certificate, admin.key)))
        connection.putrequest(method, path)
        encoded = b"" if body is None else msgspec.json.encode(body)
        for name, value in (("Content-Type", content_type), ("Content-Length", str(len(encoded))), *headers):
            connection.putheader(name, value.encode())
        connection.endheaders(encoded)
        response = connection.getresponse()
        return response, msgspec.json.decode(response.read(), type=dict[str, Any])

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _connection(self, certificate: Path, key: Path) -> http.client.HTTPSConnection:
        if certificate not in self._connections:
            context = ssl.create_default_context(cafile=str(self.cluster.authority))
            context.load_cert_chain(str(certificate), str(key))
            made = http.client.HTTPSConnection("127.0.0.1", self.cluster.plan.ports.apiserver, context=context)
            self._connections[certificate] = made
        return self._connections[certificate]


_CREATORS = "creators"
RIGHTS: tuple[tuple[str, Manifest], ...] = (
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {
            "metadata": {"name": "creators"},
            "rules": [{"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["*"]}],
        },
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "creators"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "creators"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": _CREATORS}],
        },
    ),
)
"""Those of everybody who creates pods here: every right on workloads, none on pools."""


def pod(*resources: str, quantity: str = "1", **spec: object) -> Manifest:
    """A pod with a container for each resource."""
    containers = [container(f"c{number}", {resource: quantity}) for number, resource in enumerate(resources)]
    return {"metadata": {"name": "it"}, "spec": {"containers": containers or [container("main")], **spec}}


def container(name: str, limits: Mapping[str, str] | None = None, **more: object) -> Manifest:
    return {"name": name, "image": "any", "resources": {"limits": dict(limits or {})}, **more}


def pool(name: str, **spec: object) -> GPUPool:
    """A pool as it is read from the API."""
    body = {"metadata": {"name": name}, "spec": spec}
    return msgspec.convert(body, GPUPool)


def grant(
    env: AccessEnv, verb: str, subjects: list[Manifest], pool_name: str | None = None, *, namespace: str | None = None
) -> None:
    """Let these have a verb on a pool or on all, in the cluster or in a namespace, where it holds for pods, too."""
    name = f"{'every-verb' if verb == '*' else verb}-{pool_name or 'pools'}-{subjects[0]['name'].encode().hex()}"
    rule: Manifest = {"apiGroups": ["gpu.deckhouse.io"], "resources": ["gpupools"], "verbs": [verb]}
    if namespace is not None:
        rule |= {"apiGroups": ["gpu.deckhouse.io", ""], "resources": ["gpupools", "pods"]}
    if pool_name is not None:
        rule["resourceNames"] = [pool_name]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    scope, prefix = (f"/namespaces/{namespace}", "") if namespace else ("", "cluster")
    kind = "Role" if namespace else "ClusterRole"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    metadata = {"metadata": {"name": name}}
    assert env.request("POST", f"{rbac}{scope}/{prefix}roles", metadata | {"rules": [rule]}).admitted
    binding = metadata | {"roleRef": reference, "subjects": subjects}
    assert env.request("POST", f"{rbac}{scope}/{prefix}rolebindings", binding).admitted
