"""`python -m gpu_control_plane.local`: have the programs of a local cluster in the cache, before they are needed."""

import sys

import click

from gpu_control_plane.local import Component, LocalError, checksums, ensure_binaries
from gpu_control_plane.local.downloads import published_checksum
from gpu_control_plane.local.node.requirements import NodeImpossible, system_programs
from gpu_control_plane.local.progress import Lines
from gpu_control_plane.local.releases import origins
from gpu_control_plane.local.versions import MONITORING_RELEASES, NODE_PROGRAMS, SERVICE_PROGRAMS, TEST_RELEASES


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--node", is_flag=True, help="Those of a real node, too, if one can run here.")
@click.option("--services", is_flag=True, help="With --node: those by which its pods reach services, too.")
@click.option("--chart", is_flag=True, help="Those that the tests of the Helm chart and the console run, too.")
@click.option("--monitoring", is_flag=True, help="Those of the tests of alerts and dashboards, too.")
@click.option("--record-checksums", is_flag=True, help="Only record what publishers say of their files, for review.")
def command(*, node: bool, services: bool, chart: bool, monitoring: bool, record_checksums: bool) -> None:
    """Have the programs of a local cluster in the cache: found, downloaded, or built where no download host can be
    reached. Progress goes to standard error."""
    if record_checksums:
        _record_checksums()
        return
    programs, progress = [*Component, "kubectl"], Lines(sys.stderr)
    if node:
        try:
            system_programs(services=services)
            programs += [*NODE_PROGRAMS, *(SERVICE_PROGRAMS if services else ())]
        except NodeImpossible as why:
            progress.note(f"Leaving out the programs of a real node. {why}")
    if chart:
        programs += [program for release in TEST_RELEASES for program in release.programs]
    if monitoring:
        programs += [program for release in MONITORING_RELEASES for program in release.programs]
    try:
        ensure_binaries(programs, progress)
    except LocalError as error:
        raise click.ClickException(str(error)) from error


def _record_checksums() -> None:
    try:
        count = checksums.record_checksums(origins(), published_checksum)
    except LocalError as error:
        raise click.ClickException(f"Nothing was recorded. {error}") from error
    click.echo(f"Recorded {count} checksums. Compare them with what another network shows, then commit them.")


if __name__ == "__main__":
    command()
