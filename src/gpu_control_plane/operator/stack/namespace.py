"""The namespace of the operands, marked for Pod Security: their pods are privileged, and have to be."""

from typing import ClassVar, Final

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.kube import Cache, Client, Object, Resource, Runtime, Selection

LABELS: Final = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


class OperandNamespace:
    """The one namespace, and what the policy asks of it. The marks stay when the policy no longer asks for them: others
    may have come to rely on them."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._client: Client = runtime.client
        self._name = name
        self.cache: Cache[Namespace] = runtime.cache(Namespace, Selection(fields=f"metadata.name={name}"))

    async def mark(self, policy: ClusterPolicySpec) -> bool:
        """Give the namespace the labels it lacks; False if nothing had to be written."""
        held = self.cache.get(self._name)
        missing = missing_labels(held, policy) if held is not None else {}
        if missing:
            await self._client.patch(Namespace, self._name, {"metadata": {"labels": missing}})
        return bool(missing)


def missing_labels(namespace: Namespace, policy: ClusterPolicySpec) -> dict[str, str]:
    """What the policy asks for and the namespace does not have."""
    if not on(policy.psa.enabled, absent=False):
        return {}
    held = namespace.metadata.labels
    return {label: value for label, value in LABELS.items() if held.get(label) != value}
