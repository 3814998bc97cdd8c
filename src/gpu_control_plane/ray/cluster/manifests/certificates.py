"""Certificates of a cluster, as objects of cert-manager: an authority of its own, and one each for head and workers."""

import ipaddress
from collections.abc import Iterable
from typing import Any, Final

from gpu_control_plane.api.ray.names import CREATED_BY, Label, NodeType
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.features import uses_tls
from gpu_control_plane.ray.cluster.manifests.labels import APP_NAME
from gpu_control_plane.ray.cluster.manifests.tls import secret_name

_GROUP: Final = "cert-manager.io"
_VERSION: Final = f"{_GROUP}/v1"
_USAGES: Final = ["digital signature", "key encipherment", "server auth", "client auth"]


def certificate_name(cluster: str, node_type: NodeType) -> str:
    """The Certificate of the head, or of all workers."""
    return f"ray-{node_type}-cert-{cluster}"


def authority_secret_name(context: ClusterContext) -> str:
    """The Secret of the authority: another one for a cluster that is made anew under the same name."""
    return f"{context.cluster.name}-ca-secret-{context.cluster.metadata.uid[:8]}"


def certificates(context: ClusterContext, head_ips: Iterable[str], worker_ips: Iterable[str]) -> list[Manifest]:
    """Issuers and Certificates, in the order in which they depend on each other; empty without TLS.

    The addresses of pods are in the certificates, so that nodes trust each other: give those of pods that have not
    ended. Workers find the head by name, and only the head calls workers by address.
    """
    if not uses_tls(context.cluster.spec):
        return []
    name = context.cluster.name
    self_signed, issuer = f"ray-selfsigned-issuer-{name}", f"ray-ca-issuer-{name}"
    root: dict[str, Any] = {
        "secretName": authority_secret_name(context),
        "isCA": True,
        "commonName": f"ray-ca-{name}",
        "privateKey": {"algorithm": "RSA", "size": 4096},
        "duration": "87600h0m0s",
        "renewBefore": "720h0m0s",
        "usages": ["cert sign", "crl sign"],
        "issuerRef": _issuer(self_signed),
    }
    return [
        _object(context, "Issuer", self_signed, "selfsigned-issuer", {"selfSigned": {}}),
        _object(context, "Certificate", f"ray-ca-certificate-{name}", "ca-certificate", root),
        _object(context, "Issuer", issuer, "ca-issuer", {"ca": {"secretName": authority_secret_name(context)}}),
        _leaf(context, NodeType.HEAD, issuer, [context.head_host, "localhost"], head_ips),
        _leaf(context, NodeType.WORKER, issuer, ["localhost"], worker_ips),
    ]


def _leaf(
    context: ClusterContext, node_type: NodeType, issuer: str, hosts: list[str], addresses: Iterable[str]
) -> Manifest:
    known = {"127.0.0.1", *filter(None, addresses)}
    spec = {
        "secretName": secret_name(context.cluster.name, node_type),
        "duration": "2160h0m0s",
        "renewBefore": "360h0m0s",
        "dnsNames": sorted(hosts),
        "ipAddresses": sorted(known, key=lambda address: (":" in address, int(ipaddress.ip_address(address)))),
        "usages": _USAGES,
        "issuerRef": _issuer(issuer),
    }
    name = certificate_name(context.cluster.name, node_type)
    return _object(context, "Certificate", name, f"{node_type}-certificate", spec)


def _issuer(name: str) -> dict[str, str]:
    return {"name": name, "kind": "Issuer", "group": _GROUP}


def _object(context: ClusterContext, kind: str, name: str, component: str, spec: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": _VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": context.namespace,
            "labels": {
                Label.APP_NAME.value: APP_NAME,
                Label.CREATED_BY.value: CREATED_BY,
                "app.kubernetes.io/component": component,
                Label.CLUSTER.value: context.cluster.name,
            },
            "ownerReferences": context.owner_references(),
        },
        "spec": spec,
    }
