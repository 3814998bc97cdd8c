"""`kubectl gpu doctor`: what is wrong in the cluster, by which evidence, and what to type."""

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_control_plane.cli.screen import Screen, Symbol
    from gpu_control_plane.doctor.check import Check
    from gpu_control_plane.doctor.cluster import Examined
    from gpu_control_plane.doctor.examination import Examination
    from gpu_control_plane.doctor.findings import Finding
    from gpu_control_plane.doctor.mending import Mended
    from gpu_control_plane.doctor.snapshot import Source
    from gpu_control_plane.kube.client import Client

_EXAMPLES = """\b
Examples:
  kubectl gpu doctor                                everything
  kubectl gpu doctor --only pod-waiting --only 'card-*'
  kubectl gpu doctor --list                         which checks there are
  kubectl gpu doctor --fix                          do what loses nothing, after asking
  kubectl gpu doctor --bundle support.tar.gz        for those who help you; no secrets in it
  kubectl gpu doctor -o json | jq '.findings[].check'

\b
Exit codes:
  0  nothing found
  1  the cluster cannot be reached
  2  wrong usage
  4  something was found
  5  nothing was found, but not every check could be made; or a fix failed
"""
_SHOWN = 10
"""Findings of one check that are shown; `-o json` has all."""
_WIDEST = 100


def _check_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from gpu_control_plane.doctor.checks import CHECKS  # noqa: PLC0415

    return [check.id for check in CHECKS if check.id.startswith(incomplete)]


@click.command("doctor", short_help="What is wrong, and what to type.", epilog=_EXAMPLES)
@connected(system_namespace=True)
@click.option(
    "--only",
    metavar="CHECK",
    multiple=True,
    shell_complete=_check_names,
    help="Only this check; `card-*` for several. Repeat it.",
)
@click.option("--list", "listed", is_flag=True, help="Show the checks instead of making them.")
@click.option("--fix", is_flag=True, help="Carry out the fixes that lose nothing, each after asking.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@click.option("--bundle", type=click.Path(path_type=Path, dir_okay=False), help="Write a support bundle (tar.gz).")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    *,
    connection: Connection,
    only: tuple[str, ...],
    listed: bool,
    fix: bool,
    yes: bool,
    bundle: Path | None,
    output: str,
) -> None:
    """Examine the cluster: programs, policies, nodes, cards, pools, pods and the software stack.

    Every finding names the field that shows it and a command that helps. What you may not read is said to be unknown,
    and never to be fine.
    """
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    if yes and not fix:
        raise click.UsageError("--yes goes with --fix.")
    checks = _chosen(only)
    if listed:
        _show_checks(checks, output)
        return
    told = Screen(sys.stderr)

    async def work(client: "Client") -> "tuple[Examined, list[Mended]]":
        namespace = await connection.system_namespace_in(client)
        examined = await _examine(client, namespace, checks, told)
        if output == "text":
            show(examined.examination, Screen(sys.stdout))
        if bundle is not None:
            await _write_bundle(client, examined, bundle, told)
        done = await _mend(client, examined, told, asking=not yes) if fix else []
        return examined, done

    examined, done = connection.run(work)
    if output == "json":
        _show_json(examined.examination, done)
    context.exit(exit_code(examined.examination, done))


def exit_code(found: "Examination", done: "Sequence[Mended]" = ()) -> ExitCode:
    """What was mended does not count as found."""
    if any(not each.done for each in done):
        return ExitCode.PARTIAL
    mended = {(each.check, each.about) for each in done}
    if any((finding.check, finding.about) not in mended for finding in found.findings):
        return ExitCode.FINDINGS
    return ExitCode.PARTIAL if found.not_made else ExitCode.OK


def _chosen(only: tuple[str, ...]) -> "Sequence[Check]":
    from fnmatch import fnmatchcase  # noqa: PLC0415

    from gpu_control_plane.doctor.checks import CHECKS  # noqa: PLC0415

    for pattern in only:
        if not any(fnmatchcase(check.id, pattern) for check in CHECKS):
            raise click.BadParameter(f"there is no check {pattern!r}; --list shows them.", param_hint="--only")
    return [check for check in CHECKS if not only or any(fnmatchcase(check.id, each) for each in only)]


async def _examine(client: "Client", namespace: str, checks: "Sequence[Check]", told: "Screen") -> "Examined":
    from gpu_control_plane.doctor.cluster import SETTLING_SECONDS, examine_cluster  # noqa: PLC0415
    from gpu_control_plane.doctor.examination import sources_of  # noqa: PLC0415
    from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415

    wanted, read = len(sources_of(checks)), 0
    with told.step(f"Examining {client.config.server}") as step:

        def progress(source: "Source") -> None:
            nonlocal read
            read += 1
            step.detail(f"{read} of {wanted} kinds read, last the {source.meaning}")

        def again(count: int) -> None:
            step.detail(f"{counted(count, 'check')} may be about to settle: a second look in {SETTLING_SECONDS:.0f} s")

        return await examine_cluster(client, namespace, checks, progress=progress, looking_again=again)


async def _write_bundle(client: "Client", examined: "Examined", path: Path, told: "Screen") -> None:
    from gpu_control_plane.doctor.bundle import write_bundle  # noqa: PLC0415

    with told.step(f"Writing {path}") as step:
        await write_bundle(client, examined, path, progress=step.detail)


async def _mend(client: "Client", examined: "Examined", told: "Screen", *, asking: bool) -> "list[Mended]":
    from gpu_control_plane.doctor.mending import mend, mendable  # noqa: PLC0415

    chosen = [
        finding
        for finding in mendable(examined.examination.findings)
        if not asking or click.confirm(f"{finding.about}: {finding.fix} ?", err=True)
    ]
    done = await mend(client, examined.snapshot.namespace, chosen)
    for each in done:
        told.mark(*_outcome(each))
    if not chosen:
        told.note("Nothing to do that is sure to lose nothing: the fixes above are yours to choose.")
    return done


def _outcome(each: "Mended") -> "tuple[Symbol, str]":
    from gpu_control_plane.cli.screen import BAD, OK  # noqa: PLC0415

    return (OK if each.done else BAD), f"{each.about}: {each.sentence}"


def show(found: "Examination", screen: "Screen") -> None:
    """For people: findings by group, then what could not be checked, then the count."""
    from gpu_control_plane.doctor.checks import CHECKS  # noqa: PLC0415

    groups = {check.id: check.group for check in CHECKS}
    for group, in_group in groupby(found.findings, lambda finding: groups[finding.check]):
        screen.line(screen.style(str(group), bold=True))
        for _, same in groupby(in_group, lambda finding: finding.check):
            findings = list(same)
            for finding in findings[:_SHOWN]:
                _show_finding(finding, screen)
            if len(findings) > _SHOWN:
                screen.line(f"  … and {len(findings) - _SHOWN} more like it: `-o json` has all")
        screen.line()
    _show_not_made(found, screen)
    screen.line(summary(found))


def summary(found: "Examination") -> str:
    """The count line."""
    from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415

    what = counted(len(found.findings), "finding") if found.findings else "nothing found"
    part = f" of {found.checks}" if found.not_made else ""
    code = exit_code(found)
    return f"{what}, {found.made}{part} checks made" + (f" (exit {code:d})" if code else "")


def _show_finding(finding: "Finding", screen: "Screen") -> None:
    from gpu_control_plane.cli.screen import ATTENTION, BAD  # noqa: PLC0415
    from gpu_control_plane.doctor.findings import Severity  # noqa: PLC0415

    symbol = {Severity.CRITICAL: BAD, Severity.WARNING: BAD}.get(finding.severity, ATTENTION)
    urgent = " (critical)" if finding.severity is Severity.CRITICAL else ""
    lines = _lines(f"{finding.about}  {finding.check}{urgent}: {finding.sentence}")
    screen.mark(symbol, lines[0])
    for line in lines[1:]:
        screen.line(f"  {line}")
    screen.line(screen.style(f"  seen: {finding.evidence}", fg="bright_black"))
    screen.line(f"  fix: {finding.fix}{'   (--fix does it)' if finding.mend is not None else ''}")


def _show_not_made(found: "Examination", screen: "Screen") -> None:
    from gpu_control_plane.cli.screen import ATTENTION  # noqa: PLC0415

    by_reason: dict[str, list[str]] = {}
    for each in found.not_made:
        by_reason.setdefault(each.why, []).append(each.check)
    for why, checks in by_reason.items():
        lines = _lines(f"not checked, since {why}: {', '.join(checks)}")
        screen.mark(ATTENTION, lines[0])
        for line in lines[1:]:
            screen.line(f"  {line}")


def _show_checks(checks: "Sequence[Check]", output: str) -> None:
    from gpu_control_plane.cli.output import Column, Table, show_document  # noqa: PLC0415

    if output == "json":
        fields = ("id", "title", "group", "severity")
        show_document({"checks": [{name: getattr(each, name) for name in fields} for each in checks]}, "json")
        return
    table: Table[Check] = Table(
        columns=(
            Column(title="CHECK", value=lambda each: each.id),
            Column(title="ABOUT", value=lambda each: each.group),
            Column(title="SEVERITY", value=lambda each: each.severity),
            Column(title="FINDS", value=lambda each: each.title, shortened=True),
        ),
        name=lambda each: each.id,
    )
    table.show(checks, "table")


def _show_json(found: "Examination", done: "Sequence[Mended]") -> None:
    from gpu_control_plane.cli.output import show_document  # noqa: PLC0415

    show_document(
        {
            "findings": found.findings,
            "notMade": found.not_made,
            "checks": found.checks,
            "made": found.made,
            "mended": done,
        },
        "json",
    )


def _lines(text: str) -> list[str]:
    from shutil import get_terminal_size  # noqa: PLC0415

    from gpu_control_plane.cli.screen import wrapped  # noqa: PLC0415

    return wrapped(text, width=min(get_terminal_size((_WIDEST, 1)).columns, _WIDEST) - 2) or [""]
