"""The review of a GPUDevice whose approval is about to change: who asks is recorded, and a mistake is told. Pure.

Nothing is refused: the pool may come later, as it does where a repository is applied in any order.
"""

from collections.abc import Mapping

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.admission import AdmissionResponse, allow, change
from gpu_control_plane.kube.json_patch import Json
from gpu_control_plane.rules.device_selection import selects


def review_approval(
    before: GPUDevice,
    after: GPUDevice,
    document: dict[str, Json],
    user: str,
    *,
    pool: GPUPool | None,
    node_labels: Mapping[str, str],
) -> AdmissionResponse:
    """Record the user who changes the approval; `pool` is the approved one, if it exists. `document` is edited."""
    approved = _approved(after)
    if approved == _approved(before) or not user:
        return allow()
    metadata = document.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and annotations is None:
        annotations = metadata["annotations"] = {}
    if not isinstance(annotations, dict):
        return allow()  # The API server refuses it.
    annotations[Annotation.APPROVED_BY.value] = user
    warning = _warning(after, approved, pool, node_labels) if approved else None
    return change(document, warnings=(warning,) if warning else ())


def _warning(card: GPUDevice, approved: str, pool: GPUPool | None, node_labels: Mapping[str, str]) -> str | None:
    if pool is None:
        return f"there is no GPU pool {approved}: the card joins it once it exists (kubectl get gpupools)"
    if pool.deleting:
        return f"the GPU pool {approved} is being deleted and takes no cards"
    if card.status.hardware is not None and not selects(pool, card, node_labels):
        return f"the GPU pool {approved} does not select this card, which stays out: see its spec.deviceSelector"
    return None


def _approved(device: GPUDevice) -> str:
    return device.metadata.annotations.get(Annotation.ASSIGNMENT, "")
