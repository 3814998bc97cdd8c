"""Manifests as YAML has them, and the assets from which all operands are rendered.

Assets are complete manifests; what depends on the policy is added by transforms. A file with `openshift` in its name is
for OpenShift only.
"""

import copy
import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

import yaml

from gpu_control_plane.kube.objects import OwnerReference
from gpu_control_plane.operator.views import ON_DELETE

Manifest = dict[str, Any]

_ASSETS: Final = "gpu_control_plane.operator"
_CLUSTER_WIDE: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "RuntimeClass", "SecurityContextConstraints"})


def assets(state: str, *, openshift: bool = False) -> list[Manifest]:
    """Copies of a state's manifests in the order of their file names."""
    return [copy.deepcopy(document) for name, document in _read(state) if openshift or "openshift" not in name]


def set_namespace(manifest: Manifest, namespace: str) -> None:
    """Set the namespace of an object and of the service accounts that it names.

    A SecurityContextConstraints lists service accounts under `users`; assets have them there by name alone.
    """
    if manifest["kind"] not in _CLUSTER_WIDE:
        manifest["metadata"]["namespace"] = namespace
    if manifest["kind"] == "SecurityContextConstraints":
        manifest["users"] = [
            user if ":" in user else f"system:serviceaccount:{namespace}:{user}" for user in manifest.get("users", ())
        ]
    for subject in manifest.get("subjects", ()):
        if subject["kind"] == "ServiceAccount":
            subject.setdefault("namespace", namespace)


def on_delete(spec: Mapping[str, Any]) -> bool:
    """Whether the pods of a DaemonSet are replaced only when they are deleted, as those of drivers are."""
    return bool(spec.get("updateStrategy", {}).get("type") == ON_DELETE)


def set_owner(manifest: Manifest, owner: OwnerReference) -> None:
    manifest["metadata"]["ownerReferences"] = [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@functools.cache
def _read(state: str) -> tuple[tuple[str, Manifest], ...]:
    folder = resources.files(_ASSETS) / "assets" / state
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return tuple((file.name, yaml.safe_load(file.read_text())) for file in files)
