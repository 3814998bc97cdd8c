"""What a check finds: a sentence, the field that shows it, and the command that helps."""

import re
from typing import Final

import msgspec

from gpu_control_plane.kube.fields import OpenEnum
from gpu_control_plane.kube.objects import Condition, Key, Object

_COMMAND: Final = re.compile(r"`([^`]+)`")


class Severity(OpenEnum):
    """How much a finding matters."""

    CRITICAL = "critical", "pods get no cards, or cards reach those who may not have them."
    WARNING = "warning", "cards, nodes or pods are out of service, or will be."
    INFO = "info", "nothing is broken; somebody should know, or decide."


class Evidence(msgspec.Struct, frozen=True):
    """Where it can be seen: an object, a field of it, and what it holds."""

    object: str
    """`Kind/name`, or `Kind/namespace/name`."""
    field: str
    value: str

    def __str__(self) -> str:
        return f"{self.object} {self.field}: {self.value}"


class MendKind(OpenEnum):
    """What `--fix` may do by itself: nothing of it loses anything, and all of it can be repeated."""

    DELETE_FAILED_POD = "DeleteFailedPod", "deletes a failed pod that its controller has replaced."
    LABEL_NODE = "LabelNode", "gives a Node with cards the label that brings the agent to it."
    RESTORE_POLICY = "RestorePolicy", "installs an admission policy that is missing where no chart would bring it."


class Mend(msgspec.Struct, frozen=True):
    """A safe fix as data: `mending` carries it out."""

    kind: MendKind
    target: Key
    uid: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong."""

    check: str
    about: str
    """The object, as people call it: `node worker-3`."""
    sentence: str
    evidence: Evidence
    fix: str
    """The command to type."""
    severity: Severity
    mend: Mend | None = None
    """The same as `fix`, where `--fix` may do it."""


def reference(item: Object) -> str:
    """An object as evidence names it."""
    return f"{item.resource.kind}/{item.key}"


def of_condition(item: Object, said: Condition) -> Evidence:
    return Evidence(reference(item), f"status.conditions[{said.type}]", f"{said.status}, {said.reason}")


def command_in(message: str, otherwise: str) -> str:
    """The command that a message of ours names; messages of conditions say what to do in backquotes."""
    found = _COMMAND.search(message)
    return found[1] if found is not None and " " in found[1] else otherwise
