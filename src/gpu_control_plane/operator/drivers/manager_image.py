"""Which image prepares the nodes of a driver, when nobody has named one. Pure.

A new release of the operator brings a new default. Adopting it would make a new pod on every node for nothing, so the
old one stays until something else changes as well.
"""

import copy
import hashlib
from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.nvidia.fields import ImageParts
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.driver_manager import MANAGER
from gpu_control_plane.operator.stack.manifest import Manifest

TEMPLATE_DIGEST: Final = f"{GROUP}/template-digest"
"""Annotation of a DaemonSet: a digest over its pod, but for the manager's image."""


def note_template(manifest: Manifest, manager: ImageParts) -> None:
    """Write down what the pod is like apart from an image that nobody has named."""
    if manager.repository or manager.image or manager.version:
        return
    template = copy.deepcopy(manifest["spec"]["template"])
    for container in template["spec"]["initContainers"]:
        if container["name"] == MANAGER:
            container["image"] = ""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:16]
    manifest["metadata"].setdefault("annotations", {})[TEMPLATE_DIGEST] = digest


def keep_manager(manifest: Manifest, live: Manifest | None) -> None:
    """Take over the image of the DaemonSet that is there, if nothing else would change."""
    if live is None:
        return
    wanted, held = (item["metadata"].get("annotations", {}).get(TEMPLATE_DIGEST) for item in (manifest, live))
    found = DaemonSet(live)
    if wanted is not None and wanted == held and found.has(MANAGER):
        DaemonSet(manifest).container(MANAGER).manifest["image"] = found.container(MANAGER).manifest["image"]
