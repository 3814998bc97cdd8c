"""The way to the dashboard from outside: an Ingress, or a Route where the cluster has those."""

import copy
from typing import Any, Final

from gpu_control_plane.api.ray.cluster import IngressOptions
from gpu_control_plane.api.ray.names import Label, NodeType
from gpu_control_plane.kube.objects import LAST_APPLIED
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.labels import object_labels
from gpu_control_plane.ray.cluster.manifests.services import service_ports
from gpu_control_plane.ray.names import DASHBOARD_PORT, DASHBOARD_PORT_NAME, identifier, ingress_name, route_name

_CLASS: Final = "kubernetes.io/ingress.class"
"""What kubectl notes about the RayCluster; on another object it would lead kubectl astray."""


def ingress(context: ClusterContext) -> Manifest | None:
    """The Ingress of the dashboard; None where none is asked for, and where a Route is made."""
    if not context.cluster.spec.head_group_spec.enable_ingress or _has_routes(context):
        return None
    options = context.cluster.spec.head_group_spec.ingress_options or IngressOptions()
    backend = {"service": {"name": context.head_service_name, "port": {"number": _dashboard_port(context)}}}
    path = {"path": options.path or "/", "pathType": options.path_type or "Prefix", "backend": backend}
    rule: dict[str, Any] = {"http": {"paths": [path]}}
    if options.host:
        rule["host"] = options.host
    spec: dict[str, Any] = {"rules": [rule]}
    if options.tls:
        spec["tls"] = copy.deepcopy(list(options.tls))
    if ingress_class := context.cluster.metadata.annotations.get(_CLASS):
        spec["ingressClassName"] = ingress_class
    return _object(context, "networking.k8s.io/v1", "Ingress", ingress_name(context.cluster.name), spec)


def route(context: ClusterContext) -> Manifest | None:
    """The Route of the dashboard; None where none is asked for, and outside OpenShift."""
    if not context.cluster.spec.head_group_spec.enable_ingress or not _has_routes(context):
        return None
    spec = {
        "to": {"kind": "Service", "name": context.head_service_name, "weight": 100},
        "port": {"targetPort": _dashboard_port(context)},
        "wildcardPolicy": "None",
    }
    return _object(context, "route.openshift.io/v1", "Route", route_name(context.cluster.name), spec)


def _has_routes(context: ClusterContext) -> bool:
    return context.options.openshift and not context.options.ingress_on_openshift


def _dashboard_port(context: ClusterContext) -> int:
    return service_ports(context).get(DASHBOARD_PORT_NAME, DASHBOARD_PORT)


def _object(context: ClusterContext, version: str, kind: str, name: str, spec: dict[str, Any]) -> Manifest:
    """Annotations of the cluster go along: controllers of Ingresses are told by them what to do."""
    given = context.cluster.metadata.annotations
    annotations = {key: value for key, value in given.items() if key not in (_CLASS, LAST_APPLIED)}
    labels = object_labels(context) | {Label.IDENTIFIER.value: identifier(context.cluster.name, NodeType.HEAD)}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": context.namespace,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": context.owner_references(),
        },
        "spec": spec,
    }
