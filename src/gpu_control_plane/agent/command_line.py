"""The options of `python -m gpu_control_plane.agent`: what they are called, what they mean, which exclude each other.

`start` has them as fields, and does what they say.
"""

from pathlib import Path
from typing import Any

import click

from gpu_control_plane import DEFAULT_NAMESPACE

_EXAMPLES = """\b
Examples:
  python -m gpu_control_plane.agent                              on a GPU node
  python -m gpu_control_plane.agent --unpooled nvidia.com/gpu    cards in no pool, too
  python -m gpu_control_plane.agent --burn-in                    new cards are tested first
  python -m gpu_control_plane.agent --configure-runtime          containerd learns CDI, if it must
  python -m gpu_control_plane.agent --hardware simulated         a real node with pretended cards
  python -m gpu_control_plane.agent --simulated                  all simulated nodes of a cluster
  python -m gpu_control_plane.agent --discover                   without NFD: finds GPU nodes
"""

_FOLDER = click.Path(path_type=Path, file_okay=False)


def _checked_timings(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    from gpu_control_plane.agent.timings import health_timings  # noqa: PLC0415 - `--help` answers without it
    from gpu_control_plane.settings import UnknownTiming  # noqa: PLC0415

    try:
        health_timings(given)
    except UnknownTiming as error:
        raise click.BadParameter(f"{error}.") from error
    return given


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--simulated", is_flag=True, help="Play the agents and kubelets of all simulated nodes instead.")
@click.option("--discover", is_flag=True, help="Publish which cards the PCI bus shows, and do nothing else.")
@click.option("--sysfs", type=_FOLDER, default=Path("/sys"), show_default=True, help="With --discover: where to look.")
@click.option("--node", envvar="NODE_NAME", help="Name of the Node.  [default: NODE_NAME, else the host's name]")
@click.option(
    "--hardware",
    type=click.Choice(["real", "simulated"]),
    default="real",
    show_default=True,
    help="Cards of the machine, or those that an annotation of the Node describes.",
)
@click.option(
    "--injection",
    type=click.Choice(["CDI", "Kubelet", "Runtime"]),
    default="CDI",
    show_default=True,
    help="How containers are given a card.",
)
@click.option("--unpooled", metavar="RESOURCE", help="Offer cards in no pool as this, such as nvidia.com/gpu.")
@click.option(
    "--conflicting-resource",
    metavar="RESOURCE",
    multiple=True,
    help="A resource under which another plugin would offer the same cards, beside the usual; may be repeated.",
)
@click.option("--labels", is_flag=True, help="Give the Node the labels of NVIDIA's feature discovery.")
@click.option("--exporter/--no-exporter", default=True, help="Serve what the cards measure, with the other metrics.")
@click.option("--pod-names/--no-pod-names", default=True, help="Name in these metrics the pods that have the cards.")
@click.option("--validator/--no-validator", default=True, help="Check driver, toolkit, cards and plugin.")
@click.option("--nvidia-fs", is_flag=True, help="Check the kernel module nvidia_fs, too.")
@click.option("--gdrcopy", is_flag=True, help="Check the kernel module gdrdrv, too.")
@click.option("--burn-in", is_flag=True, help="Test a new card before it may be pooled.")
@click.option(
    "--burn-in-seconds",
    type=click.FloatRange(1, 86400),
    default=60.0,
    help="With --burn-in: for how long.  [default: 60]",
)
@click.option(
    "--timing",
    "timings",
    metavar="NAME=DURATION",
    multiple=True,
    callback=_checked_timings,
    help="A waiting time, such as health.recoveryPeriod=5m; docs/settings.md lists them.",
)
@click.option("--kubelet-folder", type=_FOLDER, default=Path("/var/lib/kubelet"), show_default=True)
@click.option("--cdi-folder", type=_FOLDER, default=Path("/var/run/cdi"), show_default=True)
@click.option(
    "--container-runtime",
    type=_FOLDER,
    default=None,
    help="The socket of the container runtime, if it is at none of the usual places below --host-root.",
)
@click.option("--host-root", type=_FOLDER, default=Path("/"), show_default=True, help="Where the host's files are.")
@click.option(
    "--driver-root",
    type=_FOLDER,
    multiple=True,
    default=(Path("/"),),
    show_default=True,
    help="Where to look for the driver's files; may be repeated.",
)
@click.option(
    "--container-driver-root",
    type=_FOLDER,
    multiple=True,
    help="Where a driver container puts its files: looked at last, and never the host's; may be repeated."
    "  [default: the vendor's, such as /run/nvidia/driver]",
)
@click.option("--configure-runtime", is_flag=True, help="Write what the container runtime lacks, and leave it there.")
@click.option("--restart-runtime", is_flag=True, help="With --configure-runtime: restart it where that is needed.")
@click.option("--undo-runtime", is_flag=True, help="Take back what an agent wrote with --configure-runtime.")
@click.option(
    "--runtime",
    type=click.Choice(["auto", "containerd", "docker", "crio"]),
    default="auto",
    show_default=True,
    help="The container runtime; auto is the one that serves the kubelet.",
)
@click.option(
    "--runtime-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Its configuration file.  [default: where the runtime looks for it]",
)
@click.option("--runtime-program", metavar="PATH", help="Its program.  [default: the one on the host's path]")
@click.option("--runtime-unit", metavar="UNIT", help="Its systemd unit.  [default: named like the runtime]")
@click.option(
    "--runtime-state",
    type=_FOLDER,
    default=Path("/var/lib/gpu-control-plane/runtimes"),
    show_default=True,
    help="Where it is remembered what was written.",
)
@click.option("--nvidia-runtime", metavar="PATH", help="NVIDIA's runtime, to be made known to it as nvidia.")
@click.option("--default-runtime", is_flag=True, help="With --nvidia-runtime: for pods that name no RuntimeClass, too.")
@click.option(
    "--validations",
    type=_FOLDER,
    help="Where the status files of the checks are written.  [default: the vendor's, such as /run/nvidia/validations]",
)
@click.option(
    "--device-folder",
    type=_FOLDER,
    default=Path("/run/gpu-control-plane/devices"),
    show_default=True,
    help="Where simulated cards have their device files.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Which cluster.  [default: KUBECONFIG, as for kubectl]",
)
@click.option("--elect/--no-elect", default=False, show_default=True, help="With --simulated: take turns.")
@click.option(
    "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where reports are published; of the lease, too."
)
@click.option("--status-host", default="0.0.0.0", show_default=True, help="Address of the status port.")  # noqa: S104 - the kubelet and Prometheus call from outside the pod
@click.option(
    "--status-port",
    type=click.IntRange(0, 65535),
    help="Port for /metrics, /healthz and /readyz; 0 is a free one.  [default: none]",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def agent(**options: Any) -> dict[str, Any]:
    """Run the node agent: it publishes the node's cards, offers them to pods as its orders say, and reports.

    With --simulated one process plays the agents of every Node that `kubectl gpu simulate nodes` made. With --discover
    it needs neither root nor a driver, and only marks the nodes on which the agent should run; where Node Feature
    Discovery is installed, that does the same.
    """
    if options["simulated"] and options["discover"]:
        raise click.UsageError("--simulated and --discover are different programs: choose one.")
    if options["restart_runtime"] and not options["configure_runtime"]:
        raise click.UsageError("--restart-runtime goes with --configure-runtime.")
    if options["undo_runtime"] and options["configure_runtime"]:
        raise click.UsageError("--undo-runtime takes back what --configure-runtime does: choose one.")
    if options["default_runtime"] and not options["nvidia_runtime"]:
        raise click.UsageError("--default-runtime goes with --nvidia-runtime.")
    if (options["nvidia_fs"] or options["gdrcopy"]) and not options["validator"]:
        raise click.UsageError("--nvidia-fs and --gdrcopy are checks: they do not go with --no-validator.")
    return options


def read_command_line(arguments: list[str]) -> dict[str, Any]:
    """The options by their names; ends the process where only help was asked for, or something is wrong with them."""
    try:
        options = agent.main(arguments, prog_name="python -m gpu_control_plane.agent", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    if not isinstance(options, dict):  # an exit code: help was shown
        raise SystemExit(options)
    return options
