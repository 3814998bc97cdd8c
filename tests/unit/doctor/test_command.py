"""What `kubectl gpu doctor` shows, and how it ends: lines that fit, a command for each finding, an honest count."""

import io

import msgspec
import pytest
from click.testing import CliRunner

from gpu_control_plane.cli import doctor
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.screen import Screen
from gpu_control_plane.doctor.check import Group
from gpu_control_plane.doctor.checks import CHECKS
from gpu_control_plane.doctor.examination import Examination, NotMade, confirmed, examine, sources_of, to_look_again
from gpu_control_plane.doctor.mending import Mended
from gpu_control_plane.doctor.snapshot import Source
from unit.doctor.clusters import healthy, snapshot
from unit.doctor.test_checks import CASES, examined


def shown(found: Examination) -> list[str]:
    stream = io.StringIO()
    doctor.show(found, Screen(stream))
    return stream.getvalue().splitlines()


EVERYTHING = [spoil for name, spoils in CASES.items() for spoil in spoils[:1] if name.startswith(("card", "p", "node"))]


@pytest.mark.parametrize("columns", [80, 200])
def test_findings_are_shown_by_group_with_evidence_and_a_command(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = examined(*EVERYTHING)
    lines = shown(found)
    groups = {check.id: str(check.group) for check in CHECKS}
    headings = [line for line in lines if line in set(Group)]
    assert headings == list(dict.fromkeys(groups[finding.check] for finding in found.findings))
    for finding in found.findings:
        assert any(line.startswith(f"  fix: {finding.fix}") for line in lines)
    limit = min(columns, 100)
    assert [line for line in lines if len(line) > limit and not line.startswith(("  fix:", "  seen:"))] == []
    assert lines[-1] == f"{len(found.findings)} findings, {len(CHECKS)} checks made (exit 4)"


def test_a_healthy_cluster_is_one_line() -> None:
    assert shown(examined()) == [f"nothing found, {len(CHECKS)} checks made"]


def test_what_was_not_checked_is_said_and_is_no_success() -> None:
    held = msgspec.structs.replace(snapshot(healthy()), unread={Source.NODES: "you may not read the Nodes"})
    found = examine(held)
    lines = shown(found)
    assert lines[0].startswith("! not checked, since you may not read the Nodes: no-gpu-node, agent-missing,")
    assert lines[-1] == f"nothing found, {found.made} of {len(CHECKS)} checks made (exit 5)"


def test_many_findings_of_one_check_are_cut() -> None:
    def many(cluster: dict[str, list[object]]) -> None:
        cluster[Source.CARDS] *= 30
        for number, card in enumerate(cluster[Source.CARDS]):
            named = {"metadata": {"name": f"card-{number}"}, "status": {"message": "approved for nothing"}}
            cluster[Source.CARDS][number] = {**card, **named}  # type: ignore[dict-item]

    found = examined(many)  # type: ignore[arg-type]
    kinds = {finding.check for finding in found.findings}
    assert sum("… and 20 more like it" in line for line in shown(found)) == len(kinds)


def test_the_exit_code_says_what_is_left() -> None:
    (finding,) = examined(CASES["node-unlabelled"][0]).findings[:1]
    found = Examination(findings=(finding,), checks=1)
    done = Mended(check=finding.check, about=finding.about, done=True, sentence="labelled")
    assert doctor.exit_code(found) is ExitCode.FINDINGS
    assert doctor.exit_code(found, [done]) is ExitCode.OK
    assert doctor.exit_code(found, [msgspec.structs.replace(done, done=False)]) is ExitCode.PARTIAL
    assert doctor.exit_code(Examination(not_made=(NotMade("x", "why"),), checks=2)) is ExitCode.PARTIAL


def test_what_a_second_look_does_not_find_is_forgotten_and_the_rest_stays() -> None:
    first = examined(CASES["order-not-answered"][0], CASES["card-faulted"][0])
    again = to_look_again(first)
    assert [check.id for check in again] == ["order-not-answered"]
    assert sources_of(again) == {Source.STATES}
    settled = confirmed(first, examine(snapshot(healthy()), again), again)
    assert [finding.check for finding in settled.findings] == ["card-faulted"]
    assert confirmed(first, first, again) == first


def test_a_check_that_does_not_exist_is_refused_by_name() -> None:
    answer = CliRunner().invoke(doctor.command, ["--only", "nonsense"])
    assert answer.exit_code == ExitCode.USAGE
    assert "there is no check 'nonsense'" in answer.output
    assert "pool-unguarded" in CliRunner().invoke(doctor.command, ["--list", "--only", "pool-*"]).output
