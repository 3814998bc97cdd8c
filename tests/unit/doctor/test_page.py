"""The page about the doctor lists every check, and every fix, as the code has them."""

from itertools import groupby
from pathlib import Path

from gpu_control_plane.doctor.checks import CHECKS
from gpu_control_plane.doctor.findings import MendKind
from gpu_control_plane.doctor.snapshot import Source

PAGE = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()


def test_the_page_lists_every_check_as_the_code_does() -> None:
    for group, checks in groupby(CHECKS, lambda check: check.group):
        rows = (
            f"| `{each.id}` | {each.title} | {each.severity} | {'twice' if each.settles else ''} |" for each in checks
        )
        table = "\n".join((f"### {group}", "", "| Check | Finds | Severity | |", "|--|--|--|--|", *rows))
        assert table in PAGE, f"put this into docs/doctor.md:\n{table}"


def test_the_page_lists_every_fix_and_the_numbers_are_true() -> None:
    table = "\n".join(f"| `{fix.value}` | {fix.meaning.rstrip('.')} |" for fix in MendKind)
    assert table in PAGE, f"put this into docs/doctor.md:\n{table}"
    assert f"{len(CHECKS)} checks made" in PAGE
    assert f"one list for each kind, {len(Source)} in all" in PAGE.replace("\n", " ")
