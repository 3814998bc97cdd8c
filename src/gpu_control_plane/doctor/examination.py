"""Runs checks over a snapshot. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from gpu_control_plane.doctor.check import Check
from gpu_control_plane.doctor.checks import CHECKS
from gpu_control_plane.doctor.findings import Finding
from gpu_control_plane.doctor.snapshot import Snapshot, Source


class NotMade(msgspec.Struct, frozen=True):
    """A check without an answer, and why."""

    check: str
    why: str


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all checks. Without findings the cluster is fine only as far as checks were made."""

    findings: tuple[Finding, ...] = ()
    not_made: tuple[NotMade, ...] = ()
    checks: int = 0
    """How many were to be made."""

    @property
    def made(self) -> int:
        return self.checks - len(self.not_made)


def examine(snapshot: Snapshot, checks: Sequence[Check] = CHECKS) -> Examination:
    """Every check over one snapshot."""
    findings: list[Finding] = []
    not_made: list[NotMade] = []
    for check in checks:
        lacking = [snapshot.unread[source] for source in check.needs if source in snapshot.unread]
        if lacking:
            not_made.append(NotMade(check.id, "; ".join(dict.fromkeys(lacking))))
        else:
            findings += check.findings(snapshot)
    return Examination(findings=tuple(findings), not_made=tuple(not_made), checks=len(checks))


def to_look_again(found: Examination, checks: Sequence[Check] = CHECKS) -> tuple[Check, ...]:
    """The checks whose findings may be over in a moment."""
    finders = {finding.check for finding in found.findings}
    return tuple(check for check in checks if check.settles and check.id in finders)


def sources_of(checks: Iterable[Check]) -> frozenset[Source]:
    """What has to be read for these checks."""
    return frozenset(source for check in checks for source in check.needs)


def confirmed(first: Examination, second: Examination, again: Iterable[Check]) -> Examination:
    """The first examination, without what a second look did not find any more."""
    ids = {check.id for check in again}
    lasting = {(finding.check, finding.about): finding for finding in second.findings}
    findings = (
        lasting.get((finding.check, finding.about)) if finding.check in ids else finding for finding in first.findings
    )
    return msgspec.structs.replace(first, findings=tuple(each for each in findings if each is not None))
