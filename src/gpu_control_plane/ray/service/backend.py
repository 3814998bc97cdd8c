"""Which cluster requests go to, and the two Services that select it. Pure.

The Services stay while clusters change: only their selectors do, so their addresses are kept. Requests are never sent
to a cluster that cannot answer while another can.
"""

from typing import Any, Final

import msgspec

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.api.ray.names import Label, NodeType
from gpu_control_plane.api.ray.service import RayService
from gpu_control_plane.kube.objects import controlled_by
from gpu_control_plane.ray.cluster.manifests import ClusterContext, head_service, service_ports
from gpu_control_plane.ray.names import head_service_name, identifier, is_serve_port, serve_service_name
from gpu_control_plane.ray.owned import OwnedService

Manifest = dict[str, Any]

_NO_ADDRESS: Final = "None"
_TRUE: Final = "true"
_ORIGIN: Final = "RayService"


class Candidate(msgspec.Struct, frozen=True):
    """A cluster that requests may go to, and whether it answers them."""

    name: str
    takes_over: bool
    """It answers for every application, so an upgrade may send requests there."""
    answers: bool
    """It answers for at least one deployment."""


def choose(now: str, target: Candidate | None, source: Candidate | None, *, must_leave: bool = False) -> str:
    """The cluster that requests should go to. `target` is the one that an upgrade leads to; without an upgrade there is
    only a `source`. `must_leave`: the source is about to lose its last worker."""
    if target is None:
        return source.name if source is not None and (source.answers or now not in ("", source.name)) else now
    if target.takes_over:
        return target.name
    if source is None:
        # The first cluster: there is no Service before all its applications run.
        return target.name if target.answers and now else now
    if target.answers and (must_leave or now == target.name or not source.answers):
        return target.name
    if source.answers:
        return source.name
    return now


def serve_service_of(service: RayService) -> str:
    """The name of the Service of Serve."""
    given = (service.spec.serve_service or {}).get("metadata") or {}
    return given.get("name") or serve_service_name(service.name)


def head_service_of(service: RayService) -> str:
    return head_service_name(service.name)


def serve_ports(context: ClusterContext) -> dict[str, int]:
    """Ports of the head that Ray Serve has, by name."""
    found = service_ports(context)
    return {name: port for name, port in found.items() if is_serve_port(name)}


def port_problem(service: RayService) -> str:
    """What is wrong where the head has no port for requests; empty if it has one."""
    cluster = RayCluster(metadata=service.metadata, spec=service.spec.ray_cluster_config)
    if serve_ports(ClusterContext(cluster=cluster)):
        return ""
    return (
        "spec.rayClusterConfig.headGroupSpec.template: the first container has ports, and none of them is for "
        "requests: name one serve."
    )


def name_problem(service: RayService) -> str:
    """What is wrong where both Services would have one name."""
    name = serve_service_of(service)
    if name != head_service_of(service):
        return ""
    return f"spec.serveService.metadata.name: {name} is the Service of the head: take another name."


def serve_manifest(service: RayService, context: ClusterContext) -> Manifest | None:
    """The Service of Serve; None where the head has no port for it.

    A user's own Service gives all but the selector. Of its ports those stay that have the name of one of Serve's.
    """
    ports = serve_ports(context)
    if not ports:
        return None
    given: Manifest = service.spec.serve_service or {}
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    name = serve_service_of(service)
    own = [port for port in spec.get("ports") or () if port.get("name") in ports]
    named = {port.get("name") for port in own}
    made = [
        {"name": port, "port": number, "targetPort": number, "protocol": "TCP"}
        for port, number in sorted(ports.items())
        if port not in named
    ]
    labels = {**(metadata.get("labels") or {}), **_origin(service), Label.SERVE.value: f"{service.name}-serve"}
    selector = {Label.CLUSTER.value: context.cluster.name, Label.SERVE.value: _TRUE}
    return _service(
        service,
        name,
        labels,
        metadata.get("annotations") or {},
        {**spec, "type": spec.get("type") or _type_of(context), "selector": selector, "ports": [*own, *made]},
    )


def cluster_serve_manifest(service: RayService, context: ClusterContext) -> Manifest | None:
    """The Service of one cluster in an incremental upgrade, owned by that cluster."""
    whole = serve_manifest(service, context)
    if whole is None:
        return None
    ports = [{key: value for key, value in port.items() if key != "nodePort"} for port in whole["spec"]["ports"]]
    metadata = {
        "name": serve_service_name(context.cluster.name),
        "namespace": service.metadata.namespace,
        "labels": {**_origin(service), Label.SERVE.value: f"{context.cluster.name}-serve"},
        "ownerReferences": context.owner_references(),
    }
    spec = {"selector": whole["spec"]["selector"], "ports": ports, "type": "ClusterIP"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def head_manifest(service: RayService, context: ClusterContext, held: OwnedService | None) -> Manifest:
    """The Service of the head: like the one of a cluster, but named after the RayService. A clusterIP that it has, as
    one made by KubeRay may, is kept: the API server does not let it be removed."""
    made = head_service(context)
    labels = {
        **_origin(service),
        Label.NODE_TYPE.value: NodeType.HEAD.value,
        Label.IDENTIFIER.value: identifier(service.name, NodeType.HEAD),
    }
    metadata, spec = made["metadata"], made["spec"]
    if held is not None and held.spec.get("clusterIP") not in (None, "", _NO_ADDRESS):
        spec = {key: value for key, value in spec.items() if key != "clusterIP"}
    return _service(service, head_service_of(service), labels, metadata.get("annotations") or {}, spec)


def _type_of(context: ClusterContext) -> str:
    return context.cluster.spec.head_group_spec.service_type or "ClusterIP"


def _origin(service: RayService) -> Manifest:
    return {
        Label.ORIGINATED_FROM_NAME.value: service.name,
        Label.ORIGINATED_FROM_KIND.value: _ORIGIN,
    }


def _service(service: RayService, name: str, labels: Manifest, annotations: Manifest, spec: Manifest) -> Manifest:
    owner = controlled_by(service.resource, service.name, service.metadata.uid)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": spec,
    }
