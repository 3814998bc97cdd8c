"""Simulated nodes: ordinary Node objects that KWOK brings to life."""

import http.client

import msgspec

from gpu_control_plane.local.components import SIMULATED_NODE_ANNOTATION, SIMULATED_NODE_VALUE
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.progress import Step
from gpu_control_plane.local.sync_client import SyncClient
from gpu_control_plane.local.versions import KWOK

_CONFLICT = 409
_CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110"}


class NodeSummary(msgspec.Struct, frozen=True):
    name: str
    ready: bool


class _Metadata(msgspec.Struct):
    name: str


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Node(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _NodeList(msgspec.Struct):
    items: list[_Node]


def add_simulated_nodes(client: SyncClient, port: int, count: int, step: Step) -> None:
    """Make sure that `node-1` to `node-<count>` exist. Nodes beyond stay as they are."""
    for number in range(1, count + 1):
        name = f"node-{number}"
        try:
            answer = client.request(port, "POST", "/api/v1/nodes", _simulated_node(name))
        except (OSError, http.client.HTTPException) as error:
            raise LocalError(
                f"The API server did not answer when asked for the node {name} ({error})."
                " Look at `kubectl gpu status --local`, and try again."
            ) from error
        if not answer.ok and answer.status != _CONFLICT:
            raise LocalError(
                f"The API server refused the simulated node {name}: {answer.body.decode(errors='replace')}"
            )
        step.detail(f"{number} of {count}")


def list_nodes(client: SyncClient, port: int) -> list[NodeSummary]:
    """Every node by name; raises OSError when the API server does not answer."""
    answer = client.request(port, "GET", "/api/v1/nodes")
    if not answer.ok:
        raise OSError(f"the API server answered {answer.status}")
    return [
        NodeSummary(
            node.metadata.name,
            any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions),
        )
        for node in msgspec.json.decode(answer.body, type=_NodeList).items
    ]


def _simulated_node(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {SIMULATED_NODE_ANNOTATION: SIMULATED_NODE_VALUE},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node-role.kubernetes.io/simulated": "",
            },
        },
        "status": {
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "nodeInfo": {
                "kubeletVersion": f"kwok-{KWOK.version}",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "containerRuntimeVersion": f"kwok://{KWOK.version}",
                "kernelVersion": "simulated",
                "osImage": "simulated",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        },
    }
