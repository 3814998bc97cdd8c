"""What a check is: a question about a snapshot, and what has to be known for an answer."""

from collections.abc import Callable, Iterator

import msgspec

from gpu_control_plane.doctor.findings import Evidence, Finding, Mend, Severity
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.kube.fields import OpenEnum


class Group(OpenEnum):
    """What a check is about; findings are shown in this order."""

    CONTROL_PLANE = "Control plane"
    NODES = "Nodes"
    CARDS = "Cards"
    POOLS = "Pools"
    PODS = "Pods"
    STACK = "Software stack"
    RAY = "Ray"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the function of a check yields: a finding without what is the same for all findings of the check."""

    about: str
    sentence: str
    evidence: Evidence
    fix: str
    mend: Mend | None = None
    severity: Severity | None = None
    """Where it is another than the check's."""


type Look = Callable[[Snapshot], Iterator[Found]]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a cluster."""

    id: str
    title: str
    """What is wrong when it finds something, in a few words."""
    group: Group
    severity: Severity
    needs: tuple[Source, ...]
    look: Look
    settles: bool = False
    """Whether what it finds may be over in a moment: a finding counts if a second look finds it, too."""

    def findings(self, snapshot: Snapshot) -> list[Finding]:
        return [
            Finding(
                check=self.id,
                about=found.about,
                sentence=found.sentence,
                evidence=found.evidence,
                fix=found.fix,
                severity=found.severity or self.severity,
                mend=found.mend,
            )
            for found in self.look(snapshot)
        ]


def check(
    name: str, title: str, group: Group, severity: Severity, *needs: Source, settles: bool = False
) -> Callable[[Look], Check]:
    """Make a function a check."""

    def made(look: Look) -> Check:
        return Check(id=name, title=title, group=group, severity=severity, needs=needs, look=look, settles=settles)

    return made
