"""Services on real nodes: pods and the API server reach them, by address and by name, and nobody else is bothered."""

import asyncio
import base64
import ipaddress
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import gpu_control_plane
from blocking_wait import until
from e2e.cluster_env import ClusterEnv
from e2e.conftest import strike
from e2e.services.sniffer import elsewhere, sniffing
from gpu_control_plane.kube import Object, Resource
from gpu_control_plane.kube.admission import AdmissionRequest, AdmissionResponse, allow, deny
from gpu_control_plane.kube.tls import load_certificate, server_context
from gpu_control_plane.kube.webhooks import WebhookServer
from gpu_control_plane.local.certificates import Authority
from gpu_control_plane.local.images import BUSYBOX
from gpu_control_plane.local.node.network import Network, last_network
from gpu_control_plane.local.node.real_nodes import NODES_FOLDER

NODES = ("node-a", "node-b")
SERVE = ("sh", "-c", "mkdir /www; hostname > /www/index.html; exec httpd -f -p 80 -h /www")
WEB = {"app": "web"}


@pytest.fixture(scope="module")
def cluster_env(start_cluster_env: Callable[..., ClusterEnv]) -> Iterator[ClusterEnv]:
    """Two nodes with services, a server `web-<node>` on each, and one Service in front of both."""
    cluster_env = start_cluster_env(*NODES, services=True)
    for node in NODES:
        cluster_env.create_pod(f"web-{node}", SERVE, node=node, labels=WEB)
    _create(cluster_env, _service("web", selector=WEB))
    until(lambda: all(cluster_env.pod(f"web-{node}")["status"]["phase"] == "Running" for node in NODES), within=150)
    yield cluster_env
    strike(cluster_env)


@pytest.fixture(scope="module")
def network(cluster_env: ClusterEnv) -> Network:
    network = last_network(cluster_env.cluster.folder / NODES_FOLDER)
    assert network is not None
    return network


@pytest.mark.parametrize("node", NODES)
def test_pods_of_every_node_reach_every_server_behind_a_service(cluster_env: ClusterEnv, node: str) -> None:
    """By name, and on each node one of the servers is the asking pod itself."""
    answers: set[str] = set()

    def asked() -> set[str]:
        answers.add(_fetch(cluster_env, f"web-{node}", _resolve(cluster_env, f"web-{node}", "web")))
        return answers

    until(lambda: {"web-node-a", "web-node-b"} <= asked())


def test_pods_of_different_nodes_reach_each_other(cluster_env: ClusterEnv) -> None:
    until(lambda: _fetch(cluster_env, "web-node-a", _address(cluster_env, "web-node-b")) == "web-node-b")
    until(lambda: _fetch(cluster_env, "web-node-b", _address(cluster_env, "web-node-a")) == "web-node-a")


def test_names_are_known_as_everywhere_and_no_others(cluster_env: ClusterEnv) -> None:
    first = str(ipaddress.ip_network(cluster_env.cluster.plan.service_cidr)[1])
    assert _resolve(cluster_env, "web-node-b", "kubernetes") == first
    with pytest.raises(AssertionError, match="exit code 1"):
        cluster_env.exec("web-node-a", "nslookup", "example.com.")


def test_a_pod_reaches_the_api_server_with_its_own_credentials(cluster_env: ClusterEnv) -> None:
    """Our own client in a container, with nothing but what Kubernetes gives to every pod."""
    cluster_env.kubectl("create", "clusterrole", "see-nodes", "--verb=list", "--resource=nodes")
    cluster_env.kubectl(
        "create", "clusterrolebinding", "see-nodes", "--clusterrole=see-nodes", "--serviceaccount=default:default"
    )
    code = """
import asyncio
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.kube import Client, load_config

async def main():
    config = load_config()
    async with Client(config) as client:
        print(config.server, *sorted(node.name for node in await client.list(NodeView)))

asyncio.run(main())
"""
    _create_python_pod(cluster_env, "ours", code)
    until(lambda: cluster_env.pod("ours")["status"]["phase"] in ("Succeeded", "Failed"), within=150)
    first = ipaddress.ip_network(cluster_env.cluster.plan.service_cidr)[1]
    assert cluster_env.kubectl("logs", "ours").split() == [f"https://{first}:443", *NODES]


class ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")


async def test_the_api_server_calls_a_webhook_through_a_service(cluster_env: ClusterEnv) -> None:
    """The Service leads back to this machine: its only endpoint is the address by which pods know it."""
    asked: list[str] = []

    async def judge(request: AdmissionRequest[ConfigMap]) -> AdmissionResponse:
        asked.append(request.name)
        return deny("not on my watch") if request.name == "unwanted" else allow()

    pair = Authority(cluster_env.cluster.folder / "pki").server("webhook", ["webhook.guarded.svc"])
    tls = server_context()
    load_certificate(tls, pair.certificate.read_bytes(), pair.key.read_bytes(), "the test's certificate")
    async with _serving(cluster_env, tls, judge) as server:
        await asyncio.to_thread(_install_webhook, cluster_env, server.port)

        def create(name: str, *options: str) -> str:
            try:
                return cluster_env.kubectl("--namespace=guarded", "create", "configmap", name, *options)
            except AssertionError as refused:
                return str(refused)

        while not asked:  # until the API server has heard of the webhook, and kube-proxy of the Service
            await asyncio.to_thread(create, "unwanted", "--dry-run=server")
        assert "not on my watch" in await asyncio.to_thread(create, "unwanted")
        assert "configmap/welcome created" in await asyncio.to_thread(create, "welcome")
    assert asked[-2:] == ["unwanted", "welcome"]


def test_a_killed_kube_proxy_interrupts_nobody_and_catches_up(cluster_env: ClusterEnv) -> None:
    proxy = cluster_env.cluster.nodes["node-a"].kube_proxy
    proxy.stop(signal.SIGKILL)
    _create(cluster_env, _service("later", selector=WEB))
    until(lambda: _fetch(cluster_env, "web-node-a", _resolve(cluster_env, "web-node-a", "web")).startswith("web-node-"))
    later = _resolve(cluster_env, "web-node-a", "later")
    assert _fetch(cluster_env, "web-node-a", later) == ""
    proxy.start()
    until(lambda: _fetch(cluster_env, "web-node-a", later).startswith("web-node-"))


def test_no_address_of_the_cluster_leaves_the_machine(cluster_env: ClusterEnv, network: Network) -> None:
    """Neither those that answer nor those of nobody, from pods and from this machine."""
    ranges = network.ranges
    nobody = [
        str(ipaddress.ip_network(ranges.services)[-2]),
        *(str(ipaddress.ip_network(network.attachment(index).pods)[-2]) for index in range(3)),
        str(ipaddress.ip_network(ranges.nodes)[200]),
    ]
    tries = " & ".join(f"(nc -w 1 {address} 80 </dev/null || echo refused)" for address in nobody)
    with sniffing(ranges.all) as seen:
        until(
            lambda: _fetch(cluster_env, "web-node-a", _resolve(cluster_env, "web-node-a", "web")).startswith(
                "web-node-"
            )
        )
        assert cluster_env.exec("web-node-b", "sh", "-c", f"({tries}; wait) 2>/dev/null").split() == ["refused"] * len(
            nobody
        )
        assert all(_is_refused(address) for address in nobody)
    assert elsewhere(seen, network.interface) == {}
    assert seen[network.interface] > 0, "the sniffer sees what goes to the cluster"


def test_what_was_meant_for_a_lost_node_stays_here(cluster_env: ClusterEnv, network: Network) -> None:
    """Last, because the node is gone for good."""
    lost, pod = cluster_env.cluster.nodes["node-b"], _address(cluster_env, "web-node-b")
    lost.stop()
    with sniffing(network.ranges.all) as seen:
        assert _is_refused(pod)
        assert _is_refused(lost.address)
    assert elsewhere(seen, network.interface) == {}
    until(lambda: _fetch(cluster_env, "web-node-a", _address(cluster_env, "web-node-a")) == "web-node-a")


def _service(name: str, **spec: Any) -> dict[str, Any]:
    ports = spec.pop("ports", [{"port": 80}])
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}}


def _create(cluster_env: ClusterEnv, *objects: dict[str, Any], namespace: str = "default") -> None:
    cluster_env.kubectl(f"--namespace={namespace}", "create", "-f", "-", given="\n---\n".join(map(json.dumps, objects)))


def _fetch(cluster_env: ClusterEnv, pod: str, address: str) -> str:
    """What a server says to a pod; nothing while it does not answer."""
    answer = cluster_env.exec(pod, "sh", "-c", f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 80 || true")
    return answer.rpartition("\n\n")[2].strip()  # after the headers


def _resolve(cluster_env: ClusterEnv, pod: str, service: str) -> str:
    """The address that a pod learns for a Service."""
    said: list[str] = []

    def known() -> bool:
        try:
            said.append(cluster_env.exec(pod, "nslookup", f"{service}.default.svc.cluster.local"))
        except AssertionError:
            return False
        return True

    until(known)
    return said[-1].strip().rpartition("Address:")[2].strip()


def _address(cluster_env: ClusterEnv, pod: str) -> str:
    address: str = cluster_env.pod(pod)["status"]["podIP"]
    return address


def _is_refused(address: str) -> bool:
    try:
        socket.create_connection((address, 80), timeout=1).close()
    except OSError:
        return True
    return False


def _create_python_pod(cluster_env: ClusterEnv, name: str, code: str) -> None:
    """A pod in which this very interpreter runs, with this very code: all it needs of this machine is mounted."""
    ours = Path(gpu_control_plane.__file__).parents[1]
    needed = {
        Path(path) for path in ("/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix, ours) if Path(path).exists()
    }
    folders = sorted(path for path in needed if not any(parent in needed for parent in path.parents))
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": [sys.executable, "-c", code],
        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
        "volumeMounts": [
            {"name": f"v{index}", "mountPath": str(folder), "readOnly": True} for index, folder in enumerate(folders)
        ],
    }
    volumes = [{"name": f"v{index}", "hostPath": {"path": str(folder)}} for index, folder in enumerate(folders)]
    cluster_env.create_pod(name, containers=[container], volumes=volumes, restartPolicy="Never", node="node-a")


def _serving(cluster_env: ClusterEnv, tls: Any, judge: Any) -> WebhookServer:
    gateway = cluster_env.cluster.plan.gateway
    assert gateway is not None
    server = WebhookServer(tls, host=gateway, port=0)
    server.validating("/judge", ConfigMap, judge)
    return server


def _install_webhook(cluster_env: ClusterEnv, port: int) -> None:
    """A Service without a selector, whose endpoint is written by hand, and a webhook behind it."""
    cluster_env.kubectl("create", "namespace", "guarded")
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "webhook", "labels": {"kubernetes.io/service-name": "webhook"}},
        "addressType": "IPv4",
        "ports": [{"port": port}],
        "endpoints": [{"addresses": [cluster_env.cluster.plan.gateway]}],
    }
    _create(cluster_env, _service("webhook", ports=[{"port": 443}]), endpoints, namespace="guarded")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    webhook = {
        "name": "judge.example.org",
        "clientConfig": {
            "service": {"namespace": "guarded", "name": "webhook", "path": "/judge"},
            "caBundle": base64.b64encode(cluster_env.cluster.authority.read_bytes()).decode(),
        },
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "guarded"}},
        "objectSelector": {},
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "judge"},
        "webhooks": [webhook],
    }
    _create(cluster_env, configuration)
