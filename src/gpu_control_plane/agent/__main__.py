"""`python -m gpu_control_plane.agent --simulated`: the agents of all simulated nodes, in one process."""

import sys
from pathlib import Path

import click

_EXAMPLES = """\b
Examples:
  python -m gpu_control_plane.agent --simulated
  python -m gpu_control_plane.agent --simulated --kubeconfig ~/.kube/config --status-port 0
"""


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--simulated", is_flag=True, help="Play the agents and kubelets of all simulated nodes.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Which cluster.  [default: KUBECONFIG, as for kubectl]",
)
@click.option("--elect/--no-elect", default=False, show_default=True, help="Take turns with other replicas.")
@click.option("--namespace", help="Namespace of the lease, with --elect.")
@click.option(
    "--status-port",
    type=click.IntRange(0, 65535),
    help="Port for /metrics, /healthz and /readyz; 0 is a free one.  [default: none]",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def agent(
    *,
    simulated: bool,
    kubeconfig: Path | None,
    elect: bool,
    namespace: str | None,
    status_port: int | None,
    log_level: str,
) -> None:
    """Run the node agent.

    With --simulated one process plays the agents of every Node that `kubectl gpu simulate nodes` made: it publishes
    their cards, offers them as their orders say, gives them to pods and reports their health.
    """
    if not simulated:
        raise click.UsageError("Only simulated nodes are served so far: add --simulated.")
    from gpu_control_plane.agent.fleet.process import NAME, build  # noqa: PLC0415
    from gpu_control_plane.kube import main  # noqa: PLC0415

    options = {"kubeconfig": kubeconfig, "elect": elect, "namespace": namespace, "status_port": status_port}
    sys.exit(main(NAME, build, log_level=log_level, **options))


if __name__ == "__main__":
    agent()
