"""Pods and pools for tests of admission, as the API server would send them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpu_control_plane.admission.pods import Offer, review_pod
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.kube.admission import AdmissionResponse
from gpu_control_plane.kube.json_patch import Json

TRAINING = "gpu.deckhouse.io/training"
TOKEN = "5f1e"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pool(name: str = "training", *, free: int = 8, total: int = 8, **fields: Any) -> GPUPool:
    """A pool that is ready, with units of its resource; `spec`, `status` and `metadata` add to that or replace it."""
    spec, status = fields.get("spec", {}), fields.get("status", {})
    resource = spec.get("resource", {}).get("name", f"gpu.deckhouse.io/{name}")
    counted = {"name": resource, "total": total, "used": total - free, "reserved": 0, "available": free, "faulted": 0}
    body = {
        "metadata": {"name": name, "creationTimestamp": NOON.isoformat(), **fields.get("metadata", {})},
        "spec": spec,
        "status": {"phase": "Ready", "capacity": [counted], **status},
    }
    return msgspec.convert(body, GPUPool)


def pod(*limits: Mapping[str, str], init: tuple[Mapping[str, str], ...] = (), **fields: Any) -> dict[str, Json]:
    """A Pod with one container for each of the limits."""
    spec = fields.pop("spec", {})
    containers = [{"name": f"c{number}", "resources": {"limits": dict(each)}} for number, each in enumerate(limits)]
    first = [{"name": f"i{number}", "resources": {"limits": dict(each)}} for number, each in enumerate(init)]
    body = {"metadata": fields, "spec": {"containers": containers, "initContainers": first, **spec}}
    copied: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(body))
    return copied


def review(document: dict[str, Json], *pools: GPUPool, largest: int = 8) -> AdmissionResponse:
    asked = msgspec.convert(document, Pod).extended_resources
    offers = {name: Offer(pool, largest) for pool in pools for name in {pool.resource_name, *pool.resource_names}}
    return review_pod(asked, offers, document, TOKEN)


def reviewed(document: dict[str, Json], *pools: GPUPool) -> dict[str, Any]:
    """The Pod as it is let in."""
    response = review(document, *pools)
    assert response.allowed, response.message
    return dict(response.document) if response.document is not None else document
