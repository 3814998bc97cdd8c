"""`kubectl gpu monitoring`: Prometheus with our alerts beside the local cluster, and Grafana where it is installed."""

import sys

import click

from gpu_control_plane.cli.options import cluster_name

_EXAMPLES = """\b
Examples:
  kubectl gpu monitoring                  scrape the local cluster and judge our alerts
  kubectl gpu monitoring --port 9090      on a port of your choice
  kubectl gpu monitoring --stop           without it again; `down` ends it, too
"""


@click.command("monitoring", short_help="Watch the local cluster with Prometheus and our alerts.", epilog=_EXAMPLES)
@cluster_name
@click.option("--port", type=click.IntRange(1, 65535), help="Port of Prometheus on 127.0.0.1.  [default: a free one]")
@click.option("--stop", is_flag=True, help="Stop Prometheus and Grafana, and remove what they have stored.")
def command(*, name: str, port: int | None, stop: bool) -> None:
    """Start Prometheus beside the local cluster: it scrapes the controller and the agents, and judges our alerts.

    Where Grafana is installed it shows our dashboards. Everything stays on this machine's loopback interface, and ends
    with the cluster. Running it again is safe: after `up` has added real nodes, their agents are scraped, too.
    """
    from gpu_control_plane.cli.screen import IDLE, OK, Screen  # noqa: PLC0415
    from gpu_control_plane.cli.sidecars import start_monitoring, stop_monitoring  # noqa: PLC0415

    progress, screen = Screen(sys.stderr), Screen(sys.stdout)
    if stop:
        stop_monitoring(name)
        screen.mark(OK, f"The cluster {name} is no longer monitored.")
        return
    running = start_monitoring(name, progress, port=port)
    screen.mark(OK, f"Prometheus watches the cluster {name}: {running.prometheus}/alerts")
    if running.grafana is not None:
        screen.mark(OK, f"Grafana shows it: {running.grafana}/dashboards")
    else:
        screen.mark(IDLE, "Grafana is not installed. Where you have one, import the dashboards:")
        screen.line(f"  {running.dashboards}")
    screen.line()
    screen.line(f"  {screen.style('kubectl gpu monitoring --stop', fg='cyan')}")
