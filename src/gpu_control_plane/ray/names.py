"""Names and ports of what belongs to objects of Ray, by KubeRay's rules: users' tools and its autoscaler know them."""

import re
from typing import Final

from gpu_control_plane.api.ray.cluster import AuthOptions, RayCluster
from gpu_control_plane.api.ray.names import NodeType

DASHBOARD_PORT: Final = 8265
"""Of Ray's dashboard, where nothing says otherwise."""
DASHBOARD_PORT_NAME: Final = "dashboard"
SERVE_PORT_NUMBER: Final = 8000
"""Of Ray Serve's proxies, where nothing says otherwise."""
SERVE_PORT_NAME: Final = "serve"
AUTH_TOKEN_KEY: Final = "auth_token"  # noqa: S105 - the key in the Secret

_OBJECT_LIMIT: Final = 50
_LABEL_LIMIT: Final = 63
_BESIDE_DOT: Final = re.compile(r"[-.]*\.[-.]*")


def object_name(name: str) -> str:
    """The end of a name, of at most 50 characters, that begins with a letter: of what is for the autoscaler, of the
    Secret and of the Ingress. Services have their whole name."""
    short = name[-_OBJECT_LIMIT:]
    return f"r{short[1:]}" if short and not short[0].isalpha() else short


def pod_prefix(cluster: str, group: str, node_type: NodeType) -> str:
    """The `generateName` of a pod; a head of a fixed name has it without the last dash. Beside a dot the API server
    takes letters and digits only."""
    whole = cluster if node_type is NodeType.HEAD else _BESIDE_DOT.sub(".", f"{cluster}-{group}")
    return f"{whole[:_OBJECT_LIMIT].rstrip('.')}-{node_type}-".lower()


def pod_beginning(cluster: str) -> str:
    """What the names of all pods of a cluster begin with. Clusters with long names may share it."""
    return f"{cluster[:_OBJECT_LIMIT]}-".lower()


def label_value(value: str) -> str:
    """The last 63 characters, the first of them replaced where it may not begin a label's value."""
    short = value[-_LABEL_LIMIT:]
    return f"r{short[1:]}" if short and not short[0].isalnum() else short


def identifier(cluster: str, node_type: NodeType) -> str:
    """The value of `ray.io/identifier`."""
    return label_value(f"{cluster}-{node_type}")


def head_service_name(owner: str) -> str:
    """The head's Service of a RayCluster, or the one of a RayJob or RayService that stays while clusters change."""
    return f"{owner}-head-svc"


def head_service_of(cluster: RayCluster) -> str:
    """The head's Service of a RayCluster: as its spec names it, or by the rule."""
    given = (cluster.spec.head_group_spec.head_service or {}).get("metadata") or {}
    return given.get("name") or head_service_name(cluster.name)


def token_secret_name(cluster: str, options: AuthOptions | None) -> str:
    """The Secret with the token of a RayCluster: the user's, or one of ours."""
    return (options.secret_name if options is not None else "") or object_name(cluster)


def serve_service_name(owner: str) -> str:
    return f"{owner}-serve-svc"


def is_serve_port(name: str) -> bool:
    """Whether a port of this name takes requests to Ray Serve."""
    return name == SERVE_PORT_NAME or name.startswith(f"{SERVE_PORT_NAME}-")


def headless_service_name(cluster: str) -> str:
    return f"{cluster}-headless"


def ingress_name(cluster: str) -> str:
    return object_name(f"{cluster}-head-ingress")


def route_name(cluster: str) -> str:
    return f"{cluster}-head-route"


def redis_cleanup_job_name(cluster: str) -> str:
    return label_value(f"{cluster}-redis-cleanup")


def gcs_claim_name(cluster: str) -> str:
    return f"{cluster}-gcs-pvc"


def host_of(service: str, namespace: str, domain: str) -> str:
    """The full name of a Service in DNS."""
    return f"{service}.{namespace}.svc.{domain}"
