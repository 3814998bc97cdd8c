"""Installs the admission policies into a cluster without the chart, which brings them itself."""

import contextlib
from pathlib import Path
from typing import Any, ClassVar, Final

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from gpu_control_plane.installation.one_shot import run_in_cluster
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import FieldManager, Object, Resource
from gpu_control_plane.rules.access_index import INDEX_NAME
from gpu_control_plane.rules.access_policy import access_policies, index_manifest
from gpu_control_plane.rules.bypass_policy import BypassSettings, bypass_policies
from gpu_control_plane.rules.managed_fields_policy import managed_fields_policies

MANAGER: Final = FieldManager("gpu-control-plane-policies")


class _ConfigMap(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")


_KINDS: Final[dict[str, type[Object]]] = {
    kind.resource.kind: kind for kind in (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)
}


def policies(namespace: str) -> list[dict[str, Any]]:
    """All policies and their bindings, with the chart's default settings, for programs of ours that run in
    `namespace`."""
    bypass = BypassSettings(namespace=namespace)
    return [*access_policies(namespace), *bypass_policies(bypass), *managed_fields_policies(namespace)]


POLICY_NAMES: Final = frozenset(manifest["metadata"]["name"] for manifest in policies(DEFAULT_NAMESPACE))
"""They are the same in every namespace."""


def install_policies(kubeconfig: Path | None, namespace: str = DEFAULT_NAMESPACE) -> list[str]:
    """Install the policies into the cluster of this kubeconfig; a sentence about them. For programs without a loop."""
    return run_in_cluster(kubeconfig, lambda client: install(client, namespace))


async def remove_policies(client: Client, own: str) -> int:
    """Delete the bindings, then the policies, then the index; how many of these there were."""
    doomed: list[tuple[type[Object], str, str | None]] = [
        (_KINDS[manifest["kind"]], manifest["metadata"]["name"], None) for manifest in policies(own)
    ]
    doomed.sort(key=lambda each: each[0] is not ValidatingAdmissionPolicyBinding)
    doomed.append((_ConfigMap, INDEX_NAME, own))
    count = 0
    for kind, name, namespace in doomed:
        with contextlib.suppress(NotFound):
            await client.delete(kind, name, namespace)
            count += 1
    return count


async def install(client: Client, namespace: str) -> list[str]:
    """Apply the index without data, which is the controller's, and the policies. Our namespace has to be there."""
    await client.apply(_ConfigMap, INDEX_NAME, index_manifest(namespace), manager=MANAGER, namespace=namespace)
    names = sorted({manifest["metadata"]["name"] for manifest in policies(namespace)})
    for name in names:
        await restore(client, name, namespace)
    return [f"admission policies {', '.join(names)}: in force"]


async def restore(client: Client, name: str, namespace: str) -> None:
    """Apply the policy of this name, then its binding."""
    for manifest in policies(namespace):
        if manifest["metadata"]["name"] == name:
            await client.apply(_KINDS[manifest["kind"]], name, manifest, manager=MANAGER)
