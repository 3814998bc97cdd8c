"""The namespace of the operands, marked for Pod Security: their pods are privileged, and have to be.

A mark that we set goes again when nobody asks for it any more, and what it replaced comes back; an annotation
remembers which those are. Marks that were there before us are somebody else's and stay.
"""

from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.kube import Cache, Client, Object, Resource, Runtime, Selection
from gpu_control_plane.operator.stack.render_input import Stage

LABELS: Final = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
BEFORE: Final = f"{GROUP}/pod-security-before"
"""Annotation: the marks that we set, each with the value that it had before; an empty one had none."""
MONITORED: Final = "openshift.io/cluster-monitoring"
OPENSHIFT_NAMESPACE: Final = "nvidia-gpu-operator"
"""The only namespace that is marked on OpenShift: any other may be shared with those who must not be privileged."""


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


class Change(msgspec.Struct, frozen=True):
    """Labels and annotations to write, None to remove. False when there is nothing to do."""

    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


class OperandNamespace:
    """The one namespace, and what the policy asks of it."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._client: Client = runtime.client
        self.name = name
        self.cache: Cache[Namespace] = runtime.cache(Namespace, Selection(fields=f"metadata.name={name}"))

    async def mark(self, stage: Stage | None) -> bool:
        """Let the namespace have the marks that are asked for, None for nobody; False if nothing had to be written."""
        held = self.cache.get(self.name)
        if held is None or held.deleting or not (change := decide(held, stage)):
            return False
        patch = {"labels": change.labels, "annotations": change.annotations}
        await self._client.patch(
            Namespace, self.name, {"metadata": patch}, resource_version=held.metadata.resource_version
        )
        return True


def decide(namespace: Namespace, stage: Stage | None) -> Change:
    """What has to change about a namespace."""
    suggested = namespace.name == OPENSHIFT_NAMESPACE
    openshift = stage is not None and stage.openshift is not None
    asked = stage is not None and on(stage.policy.psa.enabled, absent=False) and (suggested or not openshift)
    change = _set(namespace) if asked else _take_back(namespace)
    if openshift and suggested and MONITORED not in namespace.metadata.labels:
        return Change({**change.labels, MONITORED: "true"}, change.annotations)
    return change


def _set(namespace: Namespace) -> Change:
    held = namespace.metadata.labels
    wrong = [label for label, value in LABELS.items() if held.get(label) != value]
    if not wrong:
        return Change()
    before = {label: held.get(label, "") for label in wrong} | _remembered(namespace)
    note = msgspec.json.encode(before, order="deterministic").decode()
    return Change({label: LABELS[label] for label in wrong}, {BEFORE: note})


def _take_back(namespace: Namespace) -> Change:
    """A mark that somebody has changed since is his."""
    if BEFORE not in namespace.metadata.annotations:
        return Change()
    held = namespace.metadata.labels
    ours = {label: value for label, value in _remembered(namespace).items() if held.get(label) == LABELS[label]}
    return Change({label: value or None for label, value in ours.items()}, {BEFORE: None})


def _remembered(namespace: Namespace) -> dict[str, str]:
    """What was there before; nothing where somebody has spoilt the note."""
    try:
        note = msgspec.json.decode(namespace.metadata.annotations.get(BEFORE, "{}"), type=dict[str, str])
    except msgspec.MsgspecError:
        return {}
    return {label: value for label, value in note.items() if label in LABELS}
