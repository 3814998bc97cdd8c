"""`kubectl gpu status`: what runs, where, and what to type next."""

import sys

import click

from gpu_control_plane.cli.options import cluster_name

_EXAMPLES = """\b
Examples:
  kubectl gpu status
  kubectl gpu status -o json | jq .state

\b
Exit codes:
  0  everything runs
  3  there is no cluster, or it is stopped
  4  it runs, but a component is down or still starting
"""
_NOT_RUNNING = 3
_NOT_WHOLE = 4


@click.command("status", short_help="Show the local cluster.", epilog=_EXAMPLES)
@cluster_name
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def command(context: click.Context, name: str, output: str) -> None:
    """Show the local cluster: its components, nodes and address."""
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415
    from gpu_control_plane.local.status import ClusterState, cluster_status  # noqa: PLC0415

    status = cluster_status(name)
    if output == "json":
        import msgspec  # noqa: PLC0415

        click.echo(msgspec.json.format(msgspec.json.encode(status), indent=2))
    else:
        from gpu_control_plane.cli.summary import show_summary  # noqa: PLC0415

        show_summary(Screen(sys.stdout), status)
    if not status.state.alive:
        context.exit(_NOT_RUNNING)
    if status.state is not ClusterState.RUNNING:
        context.exit(_NOT_WHOLE)
