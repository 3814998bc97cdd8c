"""RayServices to decide on, and the values that they share."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpu_control_plane.api.ray.service import RayService

START = datetime(2026, 1, 1, tzinfo=UTC)
POOL = "gpu.deckhouse.io/pool-a"
NO_POOL = "nvidia.com/gpu"
"""Cards that belong to no pool: how many are free is not known."""
CONFIG = "applications:\n- name: a\n  import_path: demo:app\n  deployments:\n  - name: D\n"


def template(image: str = "ray:1", gpus: int = 0, resource: str = POOL, **extra: Any) -> dict[str, Any]:
    limits = {resource: gpus} if gpus else {}
    return {"spec": {"containers": [{"name": "ray", "image": image, "resources": {"limits": limits}}], **extra}}


def group(
    name: str = "workers",
    replicas: int = 1,
    gpus: int = 1,
    image: str = "ray:1",
    resource: str = POOL,
    **fields: Any,
) -> dict[str, Any]:
    return {"groupName": name, "replicas": replicas, "template": template(image, gpus, resource), **fields}


def service_of(
    *groups: dict[str, Any],
    image: str = "ray:1",
    config: str = CONFIG,
    annotations: Mapping[str, str] | None = None,
    cluster: Mapping[str, Any] | None = None,
    **spec: Any,
) -> RayService:
    body = {
        "metadata": {
            "name": "svc",
            "namespace": "ns",
            "uid": "uid-svc",
            "generation": 1,
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "serveConfigV2": config,
            "rayClusterConfig": {
                "headGroupSpec": {"template": template(image)},
                "workerGroupSpecs": [*groups],
                **(cluster or {}),
            },
            **spec,
        },
    }
    return msgspec.convert(body, RayService)
