"""CoreDNS for the pods of real nodes: it answers names of Services only, and forwards nothing."""

import http.client
import secrets
import socket
import struct
import time
from typing import Any

from gpu_control_plane.local.errors import ComponentFailed, LocalError
from gpu_control_plane.local.images import COREDNS
from gpu_control_plane.local.node.configuration import DOMAIN
from gpu_control_plane.local.progress import duration
from gpu_control_plane.local.sync_client import SyncClient

_NAMESPACE = "kube-system"
_NAME = "coredns"
_LABELS = {"k8s-app": "kube-dns"}
_APPLY = "application/apply-patch+yaml"
_PORT = 53
_QUERY_TIMEOUT_SECONDS = 0.5
_KNOWN_NAME = f"kubernetes.default.svc.{DOMAIN}"
_A, _INTERNET = 1, 1

_CONFIGURATION = f"""\
{DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    ready
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        ttl 5
    }}
    loadbalance
}}
.:53 {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def install(client: SyncClient, port: int, address: str, nodes: tuple[str, ...]) -> None:
    """Apply the objects of CoreDNS: on one of these nodes, at this service address."""
    for path, wanted in _objects(address, nodes).items():
        try:
            answer = client.request(port, "PATCH", f"{path}?fieldManager=local&force=true", wanted, _APPLY)
        except (OSError, http.client.HTTPException) as error:
            raise LocalError(
                f"The API server did not answer when CoreDNS was installed ({error}). Try again."
            ) from error
        if not answer.ok:
            raise LocalError(f"The API server refused a part of CoreDNS: {answer.body.decode(errors='replace')}")


def wait_for_answers(address: str, timeout: float) -> None:
    """Return when a name is resolved at the service's address: kube-proxy and routes work then, too."""
    deadline = time.monotonic() + timeout
    while not answers(address, _KNOWN_NAME):
        if time.monotonic() >= deadline:
            raise ComponentFailed(
                f"CoreDNS did not answer at {address} within {duration(timeout)}. Its log is among those of the pods,"
                " in nodes/*/logs/pods of the cluster's folder, and kube-proxy's is in nodes/*/logs."
            )


def answers(server: str, name: str) -> bool:
    """Whether a DNS server has an address for a name; waits for it no longer than half a second."""
    number = secrets.token_bytes(2)
    labels = b"".join(struct.pack("B", len(label)) + label.encode() for label in name.split("."))
    question = number + struct.pack(">HHHHH", 0x0100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, _A, _INTERNET)
    started = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(_QUERY_TIMEOUT_SECONDS)
        try:
            probe.connect((server, _PORT))
            probe.send(question)
            answer = probe.recv(4096)
        except OSError:  # a refusal comes at once; the caller would ask again without a pause
            time.sleep(max(0.0, _QUERY_TIMEOUT_SECONDS / 5 - (time.monotonic() - started)))
            return False
    _flags, _questions, found = struct.unpack_from(">HHH", answer, 2)
    return answer.startswith(number) and found > 0


def _objects(address: str, nodes: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The objects by their paths in the API."""
    inside, rights = f"namespaces/{_NAMESPACE}", "/apis/rbac.authorization.k8s.io/v1"
    here, role = {"name": _NAME, "namespace": _NAMESPACE}, f"system:{_NAME}"
    watched = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", **here}],
    }
    ports = [{"name": name, "port": _PORT, "protocol": name.upper()} for name in ("udp", "tcp")]
    service = {"clusterIP": address, "selector": _LABELS, "ports": ports}
    return {
        f"/api/v1/{inside}/serviceaccounts/{_NAME}": _object("v1", "ServiceAccount", here),
        f"{rights}/clusterroles/{role}": _object(f"{rights[6:]}", "ClusterRole", {"name": role}, rules=watched),
        f"{rights}/clusterrolebindings/{role}": _object(
            f"{rights[6:]}", "ClusterRoleBinding", {"name": role}, **binding
        ),
        f"/api/v1/{inside}/configmaps/{_NAME}": _object("v1", "ConfigMap", here, data={"Corefile": _CONFIGURATION}),
        f"/apis/apps/v1/{inside}/deployments/{_NAME}": _object("apps/v1", "Deployment", here, spec=_deployment(nodes)),
        f"/api/v1/{inside}/services/kube-dns": _object(
            "v1", "Service", {"name": "kube-dns", "namespace": _NAMESPACE}, spec=service
        ),
    }


def _object(version: str, kind: str, metadata: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _deployment(nodes: tuple[str, ...]) -> dict[str, Any]:
    container = {
        "name": _NAME,
        "image": COREDNS,
        "args": ["/bin/coredns", "-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
    }
    # Nothing would run on a simulated node.
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "affinity": {"nodeAffinity": only},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": _NAME}}],
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": _LABELS},
        "template": {"metadata": {"labels": _LABELS}, "spec": pod},
    }
