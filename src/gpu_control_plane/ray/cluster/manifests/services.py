"""Services of a RayCluster: the head's, that of workers with several hosts, and the one for Ray Serve."""

import copy
from typing import Any, Final

from gpu_control_plane.api.ray.names import Annotation, Label, NodeType
from gpu_control_plane.ray.cluster.manifests.context import RAY_CLUSTER, ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.labels import head_selector
from gpu_control_plane.ray.names import (
    DASHBOARD_PORT,
    DASHBOARD_PORT_NAME,
    SERVE_PORT_NAME,
    SERVE_PORT_NUMBER,
    head_service_of,
    headless_service_name,
    is_serve_port,
    serve_service_name,
)

_DEFAULT_PORTS: Final = {
    "client": 10001,
    "gcs-server": 6379,
    DASHBOARD_PORT_NAME: DASHBOARD_PORT,
    SERVE_PORT_NAME: SERVE_PORT_NUMBER,
}
_METRICS: Final = ("metrics", 8080)


def service_ports(context: ClusterContext) -> dict[str, int]:
    """Ports of the head by name: those of its container, or those that Ray has by itself; metrics always."""
    containers = (context.cluster.spec.head_group_spec.template.get("spec") or {}).get("containers") or [{}]
    held = containers[0].get("ports") or ()
    named = {port.get("name") or f"{port['containerPort']}-port": int(port["containerPort"]) for port in held}
    ports = named or dict(_DEFAULT_PORTS)
    ports.setdefault(*_METRICS)
    return dict(sorted(ports.items()))


def serve_ports(context: ClusterContext) -> list[dict[str, Any]]:
    """Ports for requests to Ray Serve: `serve`, and those that begin with `serve-`."""
    ports = service_ports(context).items()
    return [{"name": name, "port": port} for name, port in ports if is_serve_port(name)]


def head_service(context: ClusterContext) -> Manifest:
    """The head's Service: the user's, in which the selector and the labels are ours, or one of ours."""
    group = context.cluster.spec.head_group_spec
    selector, kind = head_selector(context), group.service_type
    ports = [{"name": name, "port": port, "appProtocol": "tcp"} for name, port in service_ports(context).items()]
    given = copy.deepcopy(group.head_service or {})
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    spec["selector"] = selector
    spec["ports"] = _with_defaults(spec.get("ports") or [], ports)
    if not spec.get("type") and kind:
        spec["type"] = kind
    if group.head_service is None and not context.options.head_cluster_ip_service and kind in ("", "ClusterIP"):
        # There is one head: its address needs no other. Others find it before it is ready.
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    name = head_service_of(context.cluster)
    annotations = {**(metadata.get("annotations") or {}), **context.cluster.spec.head_service_annotations}
    return _service(context, name, {**(metadata.get("labels") or {}), **selector}, spec, annotations)


def headless_service(context: ClusterContext) -> Manifest | None:
    """The Service by which hosts of one replica find each other; None where no group has several."""
    cluster = context.cluster
    if not any(group.num_of_hosts > 1 for group in cluster.spec.worker_group_specs):
        return None
    spec = {
        "clusterIP": "None",
        "type": "ClusterIP",
        "selector": {Label.CLUSTER.value: cluster.name, Label.NODE_TYPE.value: NodeType.WORKER.value},
        "publishNotReadyAddresses": True,
    }
    return _service(context, headless_service_name(cluster.name), {Label.HEADLESS_SERVICE.value: cluster.name}, spec)


def serve_service(context: ClusterContext) -> Manifest | None:
    """The Service of a RayCluster that serves without a RayService; None where its annotation does not ask for it, and
    where its head has no port for it."""
    cluster = context.cluster
    asked = cluster.metadata.annotations.get(Annotation.ENABLE_SERVE_SERVICE.value) == "true"
    ports = serve_ports(context)
    if not asked or not ports:
        return None
    spec: dict[str, Any] = {"selector": {Label.CLUSTER.value: cluster.name}, "ports": ports}
    if cluster.spec.head_group_spec.service_type:
        spec["type"] = cluster.spec.head_group_spec.service_type
    labels = {
        Label.ORIGINATED_FROM_NAME.value: cluster.name,
        Label.ORIGINATED_FROM_KIND.value: RAY_CLUSTER,
        Label.SERVE.value: f"{cluster.name}-serve",
    }
    return _service(context, serve_service_name(cluster.name), labels, spec)


def _with_defaults(given: list[dict[str, Any]], ports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The user's ports, and after them those of ours that do not repeat a name or a number: the API server would refuse
    the Service."""
    names = {port.get("name") for port in given}
    numbers = {port.get("port") for port in given if port.get("protocol", "TCP") == "TCP"}
    return [*given, *(port for port in ports if port["name"] not in names and port["port"] not in numbers)]


def _service(
    context: ClusterContext,
    name: str,
    labels: dict[str, str],
    spec: dict[str, Any],
    annotations: dict[str, str] | None = None,
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": context.namespace,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": context.owner_references(),
        },
        "spec": spec,
    }
