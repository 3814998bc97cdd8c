"""The Pod Security labels of the operands' namespace: its pods have to be privileged.

A label that this operator set is removed when the policy does not ask for it any more, and the value that it replaced
is restored; an annotation keeps these values. Labels that were there before stay.
"""

from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.namespace import Namespace
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.kube import Cache, Client, Runtime, Selection
from gpu_control_plane.operator.stack.render_input import RenderInput

LABELS: Final = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
REPLACED_LABELS: Final = f"{GROUP}/pod-security-before"
"""Annotation: the labels that this operator set, each with the value it had before; empty if it was not set."""
MONITORED: Final = "openshift.io/cluster-monitoring"
OPENSHIFT_NAMESPACE: Final = "nvidia-gpu-operator"
"""The only namespace that is labelled on OpenShift: any other may be shared with pods that must not be privileged."""


class NamespacePatch(msgspec.Struct, frozen=True):
    """Labels and annotations to write, None to remove. False when there is nothing to write."""

    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


class OperandNamespace:
    """The namespace of the operands, and its cache."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._client: Client = runtime.client
        self.name = name
        self.cache: Cache[Namespace] = runtime.cache(Namespace, Selection(fields=f"metadata.name={name}"))

    async def update_labels(self, render_input: RenderInput | None) -> bool:
        """Write the labels that the policy asks for, or with None restore what was there before; False if nothing had
        to be written."""
        held = self.cache.get(self.name)
        if held is None or held.deleting or not (patch := namespace_patch(held, render_input)):
            return False
        metadata = {"labels": patch.labels, "annotations": patch.annotations}
        await self._client.patch(
            Namespace, self.name, {"metadata": metadata}, resource_version=held.metadata.resource_version
        )
        return True


def namespace_patch(namespace: Namespace, render_input: RenderInput | None) -> NamespacePatch:
    """What has to change about a namespace."""
    suggested = namespace.name == OPENSHIFT_NAMESPACE
    openshift = render_input is not None and render_input.openshift is not None
    asked = (
        render_input is not None and on(render_input.policy.psa.enabled, absent=False) and (suggested or not openshift)
    )
    patch = _set(namespace) if asked else _restore(namespace)
    if openshift and suggested and MONITORED not in namespace.metadata.labels:
        return NamespacePatch({**patch.labels, MONITORED: "true"}, patch.annotations)
    return patch


def _set(namespace: Namespace) -> NamespacePatch:
    held = namespace.metadata.labels
    wrong = [label for label, value in LABELS.items() if held.get(label) != value]
    if not wrong:
        return NamespacePatch()
    before = {label: held.get(label, "") for label in wrong} | _replaced(namespace)
    note = msgspec.json.encode(before, order="deterministic").decode()
    return NamespacePatch({label: LABELS[label] for label in wrong}, {REPLACED_LABELS: note})


def _restore(namespace: Namespace) -> NamespacePatch:
    """Undo what this operator set; a label that another writer has changed since stays."""
    if REPLACED_LABELS not in namespace.metadata.annotations:
        return NamespacePatch()
    held = namespace.metadata.labels
    ours = {label: value for label, value in _replaced(namespace).items() if held.get(label) == LABELS[label]}
    return NamespacePatch({label: value or None for label, value in ours.items()}, {REPLACED_LABELS: None})


def _replaced(namespace: Namespace) -> dict[str, str]:
    """The values that our labels replaced; empty if the annotation cannot be read."""
    try:
        note = msgspec.json.decode(namespace.metadata.annotations.get(REPLACED_LABELS, "{}"), type=dict[str, str])
    except msgspec.MsgspecError:
        return {}
    return {label: value for label, value in note.items() if label in LABELS}
