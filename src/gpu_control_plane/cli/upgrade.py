"""`kubectl gpu upgrade`: how far the upgrade of drivers is; pause it, and let it go on."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import names
from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.output import Column, Table, age, output_option, say, tell_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_control_plane.kube.client import Client
    from gpu_control_plane.operator.upgrade_pause import UpgradeSetting
    from gpu_control_plane.views.fleet import Fleet
    from gpu_control_plane.views.upgrades import NodeUpgrade, UpgradeProgress

_EXAMPLES = """\b
Examples:
  kubectl gpu upgrade status              how far it is, node by node
  kubectl gpu upgrade pause               no further node begins
  kubectl gpu upgrade pause --node h200-3 only this node is left alone
  kubectl gpu upgrade resume
"""


@click.group("upgrade", short_help="The upgrade of drivers: status, pause, resume.", epilog=_EXAMPLES)
def command() -> None:
    """How far the upgrade of drivers is; pause it, and let it go on. Nodes under way are always finished."""


@command.command("status")
@click.option("--all", "everything", is_flag=True, help="Also the nodes that are done.")
@output_option
@connected()
def status(*, everything: bool, output: str, connection: Connection) -> None:
    """How far the upgrade of drivers is: which nodes are under way, wait, or have failed and why.

    \b
    Examples:
      kubectl gpu upgrade status
      kubectl gpu upgrade status --all -o wide
      kubectl gpu upgrade status -o json | jq '.items[] | select(.state == "upgrade-failed")'

    \b
    Exit codes: 0 nothing failed; 1 no answer; 4 it failed on a node; 5 something may not be read.
    """
    from gpu_control_plane.operator.upgrade_pause import read_policies, upgrade_settings  # noqa: PLC0415
    from gpu_control_plane.views.reading import Part, read_fleet  # noqa: PLC0415
    from gpu_control_plane.views.upgrades import upgrade_progress  # noqa: PLC0415

    async def read(client: "Client") -> "tuple[Fleet, list[UpgradeSetting]]":
        policies = await read_policies(client)
        return await read_fleet(client, (Part.NODES, Part.STATES)), upgrade_settings(policies)

    fleet, settings = connection.run(read)
    found = upgrade_progress(fleet)
    rows = [node for node in found.nodes if everything or node.state != "upgrade-done"]
    if output in ("table", "wide"):
        _say_progress(found, settings)
    if rows or output not in ("table", "wide"):
        upgrade_table().show(rows, output, missing=fleet.missing)
    partial = tell_missing(fleet.missing)
    click.get_current_context().exit(partial or (ExitCode.FINDINGS if found.failed else ExitCode.OK))


@command.command("pause")
@click.option(
    "--node", metavar="NAME", shell_complete=names.nodes, help="Leave this node alone, and go on with the others."
)
@connected()
def pause(*, node: str | None, connection: Connection) -> None:
    """Let no further node begin its upgrade. Nodes under way are finished.

    It sets upgradePolicy.paused of the ClusterPolicy and of each NVIDIADriver; with --node, the label
    nvidia.com/gpu-driver-upgrade.skip of the Node.

    \b
    Examples:
      kubectl gpu upgrade pause
      kubectl gpu upgrade pause --node h200-3

    \b
    Exit codes: 0 done, also if it was so before; 1 failed; 3 no such node, or nothing to pause.
    """
    _set(connection, node, paused=True)


@command.command("resume")
@click.option("--node", metavar="NAME", shell_complete=names.nodes, help="No longer leave this node alone.")
@connected()
def resume(*, node: str | None, connection: Connection) -> None:
    """Let the upgrade go on.

    \b
    Examples:
      kubectl gpu upgrade resume
      kubectl gpu upgrade resume --node h200-3

    \b
    Exit codes: 0 done, also if it was so before; 1 failed; 3 no such node, or nothing to resume.
    """
    _set(connection, node, paused=False)


def _set(connection: Connection, node: str | None, *, paused: bool) -> None:
    from gpu_control_plane.cli.screen import IDLE, OK, Screen  # noqa: PLC0415
    from gpu_control_plane.operator.upgrade_pause import (  # noqa: PLC0415
        read_policies,
        set_paused,
        set_skipped,
        upgrade_settings,
    )

    async def work(client: "Client") -> "tuple[list[str], bool]":
        if node is not None:
            return ([f"node {node}"] if await set_skipped(client, node, skipped=paused) else []), True
        policies = await read_policies(client)
        return await set_paused(client, policies, paused=paused), any(
            each.automatic for each in upgrade_settings(policies)
        )

    changed, on = connection.run(work)
    screen = Screen(sys.stdout)
    if not on:
        say("Upgrades are off: no ClusterPolicy or NVIDIADriver has upgradePolicy.autoUpgrade.  Next: docs/stack.md")
        click.get_current_context().exit(ExitCode.ABSENT)
    word = "paused" if paused else "going on"
    for each in changed:
        screen.mark(OK, f"{each} is {word}.")
    if not changed:
        screen.mark(IDLE, f"Nothing to do: it is {word} already.")


def upgrade_table() -> "Table[NodeUpgrade]":
    now = datetime.now(UTC)
    return Table(
        columns=[
            Column(title="NODE", value=lambda row: row.node),
            Column(title="STATE", value=lambda row: row.state, colour=_colour),
            Column(title="FOR", value=lambda row: _iso(row.since), text=lambda row: age(row.since, now)),
            Column(title="DRIVER", value=lambda row: row.driver),
            Column(title="LEFT ALONE", value=lambda row: "yes" if row.skipped else "", optional=True),
            Column(title="WHY", value=lambda row: row.failure or row.state.meaning.rstrip("."), shortened=True),
            Column(title="STARTED", value=lambda row: _iso(row.started), wide=True),
        ],
        name=lambda row: f"node/{row.node}",
    )


def _say_progress(found: "UpgradeProgress", settings: "Sequence[UpgradeSetting]") -> None:
    if not found.total:
        on = any(each.automatic for each in settings)
        why = "no node has a driver of ours" if on else "upgrades are off, or drivers come from the hosts"
        say(f"No driver is upgraded here: {why}.  Next: kubectl get clusterpolicies,nvidiadrivers")
        return
    parts = {"under way": found.in_progress, "waiting": found.waiting, "failed": found.failed}
    rest = "".join(f", {count} {what}" for what, count in parts.items() if count)
    say(f"{found.done} of {found.total} nodes done{rest}")
    for each in settings:
        if each.paused:
            say(f"! {each.kind} {each.name} is paused: no further node begins.  Next: kubectl gpu upgrade resume")
        elif each.message:
            say(f"{each.kind} {each.name}: {each.message}")


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _colour(row: "NodeUpgrade") -> str | None:
    return "red" if row.state == "upgrade-failed" else "yellow" if row.in_progress else None
