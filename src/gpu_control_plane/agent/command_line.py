"""`python -m gpu_control_plane.agent`: the agent of this node, those of all simulated nodes, or discovery alone."""

import socket
import sys
from functools import partial
from pathlib import Path

import click

from gpu_control_plane.agent.footprint import import_sparingly

_EXAMPLES = """\b
Examples:
  python -m gpu_control_plane.agent                                   # on a GPU node
  python -m gpu_control_plane.agent --unpooled nvidia.com/gpu         # cards in no pool, too
  python -m gpu_control_plane.agent --burn-in                         # new cards are tested first
  python -m gpu_control_plane.agent --configure-runtime               # containerd learns CDI, if it must
  python -m gpu_control_plane.agent --hardware simulated              # a real node with pretended cards
  python -m gpu_control_plane.agent --simulated --status-port 0       # every simulated node of a cluster
  python -m gpu_control_plane.agent --discover                        # without NFD: says which nodes have cards
"""

_FOLDER = click.Path(path_type=Path, file_okay=False)


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
@click.option("--labels", is_flag=True, help="Give the Node the labels of NVIDIA's feature discovery.")
@click.option("--exporter/--no-exporter", default=True, help="Serve what the cards measure, with the other metrics.")
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
    "--recovery-seconds",
    type=click.FloatRange(0, 3600),
    default=60.0,
    help="How long a faulted card has to look well before it returns.  [default: 60]",
)
@click.option("--kubelet-folder", type=_FOLDER, default=Path("/var/lib/kubelet"), show_default=True)
@click.option("--cdi-folder", type=_FOLDER, default=Path("/var/run/cdi"), show_default=True)
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
@click.option(
    "--runtime",
    type=click.Choice(["containerd", "docker", "crio"]),
    default="containerd",
    show_default=True,
    help="The container runtime.",
)
@click.option(
    "--runtime-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Its configuration file.  [default: where the runtime looks for it]",
)
@click.option(
    "--runtime-state",
    type=_FOLDER,
    default=Path("/var/lib/gpu-control-plane/runtimes"),
    show_default=True,
    help="Where it is remembered what was written.",
)
@click.option("--nvidia-runtime", metavar="PATH", help="NVIDIA's runtime, to be made known to it as nvidia.")
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
    discover: bool,
    sysfs: Path,
    node: str | None,
    hardware: str,
    injection: str,
    unpooled: str | None,
    labels: bool,
    exporter: bool,
    validator: bool,
    nvidia_fs: bool,
    gdrcopy: bool,
    burn_in: bool,
    burn_in_seconds: float,
    recovery_seconds: float,
    kubelet_folder: Path,
    cdi_folder: Path,
    host_root: Path,
    driver_root: tuple[Path, ...],
    container_driver_root: tuple[Path, ...],
    configure_runtime: bool,
    restart_runtime: bool,
    runtime: str,
    runtime_config: Path | None,
    runtime_state: Path,
    nvidia_runtime: str | None,
    validations: Path | None,
    device_folder: Path,
    kubeconfig: Path | None,
    elect: bool,
    namespace: str | None,
    status_port: int | None,
    log_level: str,
) -> None:
    """Run the node agent: it publishes the node's cards, offers them to pods as its orders say, and reports.

    With --simulated one process plays the agents of every Node that `kubectl gpu simulate nodes` made. With --discover
    it needs neither root nor a driver, and only marks the nodes on which the agent should run; where Node Feature
    Discovery is installed, that does the same.
    """
    if simulated and discover:
        raise click.UsageError("--simulated and --discover are different programs: choose one.")
    if restart_runtime and not configure_runtime:
        raise click.UsageError("--restart-runtime goes with --configure-runtime.")
    if (nvidia_fs or gdrcopy) and not validator:
        raise click.UsageError("--nvidia-fs and --gdrcopy are checks: they do not go with --no-validator.")
    import_sparingly()
    from gpu_control_plane.agent.step import RecoveryPolicy  # noqa: PLC0415
    from gpu_control_plane.kube import main  # noqa: PLC0415
    from gpu_control_plane.kube.logs import configure_logs  # noqa: PLC0415

    name = node or socket.gethostname().lower()
    recovery = RecoveryPolicy(seconds=recovery_seconds)
    process = {"kubeconfig": kubeconfig, "namespace": namespace, "status_port": status_port}
    if simulated:
        from gpu_control_plane.agent.fleet import process as fleet  # noqa: PLC0415

        build_fleet = partial(fleet.build, recovery=recovery)
        sys.exit(main(fleet.NAME, build_fleet, log_level=log_level, elect=elect, **process))

    if discover:
        from gpu_control_plane.agent.backends.sysfs import Sysfs  # noqa: PLC0415
        from gpu_control_plane.agent.discovery import process as discovery  # noqa: PLC0415

        look = partial(discovery.build, node=name, sysfs=Sysfs(sysfs))
        sys.exit(main(discovery.NAME, look, log_level=log_level, elect=False, **process))

    from gpu_control_plane.agent.node import process as node_process  # noqa: PLC0415
    from gpu_control_plane.agent.node.options import Hardware, Options  # noqa: PLC0415
    from gpu_control_plane.agent.vendors.registry import container_driver_roots  # noqa: PLC0415
    from gpu_control_plane.api.gpunodestate import Injection  # noqa: PLC0415

    options = Options(
        node=name,
        hardware=Hardware(hardware),
        injection=Injection(injection),
        unpooled=unpooled,
        labels=labels,
        exporter=exporter,
        validator=validator,
        extra_checks=frozenset(check for check, on in (("nvidia-fs", nvidia_fs), ("gdrcopy", gdrcopy)) if on),
        burn_in=burn_in,
        burn_in_seconds=burn_in_seconds,
        recovery=recovery,
        kubelet=kubelet_folder,
        cdi=cdi_folder,
        host=host_root,
        driver_roots=driver_root,
        container_driver_roots=container_driver_root or container_driver_roots(),
        validations=validations,
        simulated_devices=device_folder,
    )
    if configure_runtime:
        from gpu_control_plane.agent.runtimes.interface import Handler, Wanted  # noqa: PLC0415
        from gpu_control_plane.agent.runtimes.setup import RuntimeName, Setup  # noqa: PLC0415
        from gpu_control_plane.agent.runtimes.startup import configure_at_start  # noqa: PLC0415

        setup = Setup(runtime=RuntimeName(runtime), config=runtime_config, state=runtime_state, host=host_root)
        wanted = Wanted(
            spec_dirs=tuple(dict.fromkeys((*Wanted().spec_dirs, str(cdi_folder)))),
            handler=Handler(nvidia_runtime) if nvidia_runtime else None,
        )
        configure_logs(log_level)
        configure_at_start(setup.open(), wanted, setup.restarter() if restart_runtime else None)

    build = partial(node_process.build, options=options)
    sys.exit(main(node_process.NAME, build, log_level=log_level, elect=False, **process))


if __name__ == "__main__":
    agent()
