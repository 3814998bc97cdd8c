"""The init container in which a worker waits for the head."""

import copy
from typing import Final

from gpu_control_plane.ray.cluster.manifests.containers import Part, equal_resources, like_ray, members
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext
from gpu_control_plane.ray.cluster.manifests.start_command import shell

WAIT_FOR_GCS: Final = "wait-gcs-ready"

_SCRIPT: Final = """\
SECONDS=0
while true; do
  if (( SECONDS <= 120 )); then
    if ray health-check --address {address} > /dev/null 2>&1; then
      echo "GCS is ready."
      break
    fi
    echo "$SECONDS seconds elapsed: waiting for GCS to be ready."
  else
    if ray health-check --address {address}; then
      echo "GCS is ready. Errors above are of no concern."
      break
    fi
    echo "$SECONDS seconds elapsed: still waiting for GCS to be ready. Is the head's pod ready, and does DNS know it?"
  fi
  sleep 5
done
"""


def add_wait_for_gcs(spec: Part, context: ClusterContext) -> None:
    """Let a worker start Ray only when the head answers. It has the environment and the volumes of the user's Ray
    container, which may hold what a connection needs; call it before anything is added there."""
    ray = spec["containers"][0]
    kept = like_ray(ray, ("image", "imagePullPolicy", "securityContext", "env", "envFrom", "volumeMounts"))
    members(spec, "initContainers").append(
        {
            "name": WAIT_FOR_GCS,
            **copy.deepcopy(kept),
            "command": shell(context.options),
            "args": [_SCRIPT.format(address=f"{context.head_host}:{context.gcs_port}")],
            "resources": equal_resources("200m", "256Mi"),
        }
    )
