"""Which image the driver manager has when the NVIDIADriver names none. Pure.

A new release of the operator brings a new default image. Adopting it would replace the driver pod on every node without
need, so the old one stays until something else in the pod changes as well.
"""

import copy
import hashlib
from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.nvidia.fields import ImageParts
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.transforms import MANAGER

TEMPLATE_DIGEST: Final = f"{GROUP}/template-digest"
"""Annotation of a DaemonSet: a digest over its pod template without the manager's image."""


def note_template(manifest: Manifest, manager: ImageParts) -> None:
    """Add the digest of the pod template, if the manager's image is a default."""
    if manager.repository or manager.image or manager.version:
        return
    template = copy.deepcopy(manifest["spec"]["template"])
    for container in template["spec"]["initContainers"]:
        if container["name"] == MANAGER:
            container["image"] = ""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:16]
    manifest["metadata"].setdefault("annotations", {})[TEMPLATE_DIGEST] = digest


def keep_manager(manifest: Manifest, live: Manifest | None) -> None:
    """Keep the manager's image of the DaemonSet in the cluster, if nothing else would change."""
    if live is None:
        return
    wanted, held = (item["metadata"].get("annotations", {}).get(TEMPLATE_DIGEST) for item in (manifest, live))
    found = DaemonSetManifest(live)
    if wanted is not None and wanted == held and found.has(MANAGER):
        DaemonSetManifest(manifest).container(MANAGER).manifest["image"] = found.container(MANAGER).manifest["image"]
