"""A sample of a RayCluster, and the operator that it is for."""

from collections.abc import Mapping

import msgspec

from gpu_control_plane.ray.options import RayOptions
from integration.ray.expected.checks import ExpectedCluster, Json
from ray_samples import changed


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample, the operator that it is for, and what it becomes."""

    expected: ExpectedCluster
    options: RayOptions = RayOptions()
    name: str = ""
    """The file, if not the name of the row."""
    edits: Mapping[str, object] = {}
    """What admission fills in that an API server without a controller-manager does not have."""

    def manifest(self, row: str) -> Json:
        return changed(self.name or row, self.edits)
