"""`kubectl gpu backup`: write down what people have decided about cards, pools and the software of nodes."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli.connection import Connection, connected
from gpu_control_plane.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from gpu_control_plane.backup.file import Backup
    from gpu_control_plane.kube.client import Client


@click.command("backup", short_help="Write pools and approvals into a file.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file.  [default: standard output]",
)
@connected()
def command(*, file: Path | None, connection: Connection) -> None:
    """Write what people have decided into a file: pools, which card is approved for which of them, holds, cards out of
    service, ClusterPolicies and NVIDIADrivers.

    What controllers work out by themselves is not in it, and no secret: what looks like one is left out, and named.
    `kubectl gpu restore` brings it into a new cluster with the same machines.

    \b
    Examples:
      kubectl gpu backup -o gpus.yaml
      kubectl gpu backup | ssh vault 'cat > gpus.yaml'

    \b
    Exit codes: 0 written; 1 error, and nothing is written; 2 wrong usage;
      5 written, and something could not be kept.
    """

    async def work(client: "Client") -> "Backup":
        from gpu_control_plane.backup.collect import backup_of, read_decisions  # noqa: PLC0415
        from gpu_control_plane.cli.plans import patiently  # noqa: PLC0415
        from gpu_control_plane.kube.times import utc_now  # noqa: PLC0415

        decisions = await patiently("Reading cards and pools", read_decisions(client))
        return backup_of(decisions, cluster=client.config.server, now=utc_now())

    click.get_current_context().exit(_tell(connection.run(work), file))


def _tell(backup: "Backup", file: Path | None) -> int:
    import sys  # noqa: PLC0415

    from gpu_control_plane.backup.file import write_backup  # noqa: PLC0415
    from gpu_control_plane.cli.screen import OK, Screen  # noqa: PLC0415
    from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415

    text, errors = write_backup(backup), Screen(sys.stderr)
    if file is None:
        click.echo(text, nl=False)
    else:
        _replace(file, text)
        kept = [counted(len(backup.pools), "pool"), counted(len(backup.cards), "card")]
        software = len(backup.cluster_policies) + len(backup.nvidia_drivers)
        kept += [f"{counted(software, 'object')} of the software stack"] if software else []
        Screen(sys.stdout).mark(OK, f"{file}: {', '.join(kept)}")
    for sentence in backup.left_out:
        errors.failure(sentence)
    return ExitCode.PARTIAL if backup.left_out else ExitCode.OK


def _replace(file: Path, text: str) -> None:
    """Write all of it or nothing: the backup of yesterday is better than half of today's."""
    import os  # noqa: PLC0415

    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(text)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
