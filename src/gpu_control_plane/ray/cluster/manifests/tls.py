"""TLS between the nodes of Ray: what pods need for it. The certificates are in `certificates`."""

from typing import Final

from gpu_control_plane.api.ray.names import NodeType
from gpu_control_plane.ray.cluster.manifests.containers import (
    Part,
    add_mount,
    add_volume,
    default_env,
    equal_resources,
    has_mount,
    like_ray,
    members,
    ray_container,
)
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.cluster.manifests.features import uses_tls
from gpu_control_plane.ray.cluster.manifests.init_containers import WAIT_FOR_GCS
from gpu_control_plane.rules.ray.security import TLS_PATH, TLS_VOLUME

WAIT_FOR_CERTIFICATE: Final = "wait-for-tls-ip-san"

_SCRIPT: Final = f"""\
CERT="{TLS_PATH}/tls.crt"
if [ -z "${{POD_IP}}" ]; then
  POD_IP=$(hostname -i 2>/dev/null | awk '{{print $1}}')
fi
if ! command -v openssl >/dev/null 2>&1; then
  echo "openssl is not in the image: cannot see whether the certificate names this pod" >&2
  exit 1
fi
until openssl x509 -in "${{CERT}}" -noout -text 2>/dev/null | grep -qE "IP Address:${{POD_IP}}([^0-9.]|$)"; do
  echo "The certificate does not name ${{POD_IP}} yet: trying again in 5 s"
  sleep 5
done
echo "The certificate names ${{POD_IP}}"
"""


def secret_name(cluster: str, node_type: NodeType) -> str:
    """The Secret with the certificate of the head, or of all workers."""
    return f"ray-{node_type}-secret-{cluster}"


def put_tls(spec: Part, context: ClusterContext, node_type: NodeType) -> None:
    """Let a pod speak TLS. It starts when its certificate names its address: others would not trust it before."""
    if not uses_tls(context.cluster.spec):
        return
    add_volume(spec, TLS_VOLUME, {"secret": {"secretName": secret_name(context.cluster.name, node_type)}})
    ray = ray_container(spec)
    put_tls_files(ray)
    for container in spec.get("initContainers") or ():
        if container.get("name") == WAIT_FOR_GCS:
            put_tls_files(container)
    if any(held.get("name") == WAIT_FOR_CERTIFICATE for held in spec.get("initContainers") or ()):
        return
    waiting = {
        "name": WAIT_FOR_CERTIFICATE,
        **like_ray(ray, ("image", "imagePullPolicy", "securityContext")),
        "command": ["sh", "-c"],
        "args": [_SCRIPT],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "volumeMounts": [{"name": TLS_VOLUME, "mountPath": TLS_PATH, "readOnly": True}],
        "resources": equal_resources("50m", "64Mi"),
    }
    members(spec, "initContainers").insert(0, waiting)


def put_tls_files(container: Part) -> None:
    """Tell a container of the pod's certificate."""
    default_env(container, "RAY_USE_TLS", "1")
    default_env(container, "RAY_TLS_SERVER_CERT", f"{TLS_PATH}/tls.crt")
    default_env(container, "RAY_TLS_SERVER_KEY", f"{TLS_PATH}/tls.key")
    default_env(container, "RAY_TLS_CA_CERT", f"{TLS_PATH}/ca.crt")
    if not has_mount(container, name=TLS_VOLUME, path=TLS_PATH):
        add_mount(container, TLS_VOLUME, TLS_PATH, readOnly=True)
