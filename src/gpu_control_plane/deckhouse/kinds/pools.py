"""Our own GPUPool, as a document among the others."""

from typing import ClassVar

from gpu_control_plane.api.gpupool import GPUPool, PoolSpec
from gpu_control_plane.deckhouse.kinds.document import Document, Metadata


class GPUPoolDocument(Document, frozen=True, kw_only=True):
    api_version: ClassVar[str] = f"{GPUPool.resource.group}/{GPUPool.resource.version}"
    kind: ClassVar[str] = GPUPool.resource.kind

    metadata: Metadata
    spec: PoolSpec
