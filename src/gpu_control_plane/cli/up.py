"""`kubectl gpu up`: start the local cluster, or what is down in it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli import options

if TYPE_CHECKING:
    from gpu_control_plane.agent.simulated.machine import Machine

_EXAMPLES = """\b
Examples:
  kubectl gpu up                          a control plane and three simulated nodes
  kubectl gpu up --nodes 50               more nodes; those that exist stay
  kubectl gpu up --real-node --cards 2    a node that runs containers, with two simulated cards
  kubectl gpu up --bare                   Kubernetes and the API only, for your own controller
  kubectl gpu up --name second            another cluster beside the first
"""


@click.command("up", short_help="Start the local cluster.", epilog=_EXAMPLES)
@options.cluster_name
@click.option(
    "--nodes",
    type=click.IntRange(0, 5000),
    help="Simulated nodes to have.  [default: 3, and none beside real ones]",
)
@click.option(
    "--real-node",
    "real_nodes",
    count=True,
    help="Have a real node, with kubelet, containers, services and DNS; repeat it for more. Needs Linux and root.",
)
@options.profile(help="Model of the simulated cards in real nodes.")
@options.cards(help="Simulated cards in each real node.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the API server on 127.0.0.1.  [default: a free one]"
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120,
    show_default=True,
    help="Seconds to wait for each component.",
)
@click.option(
    "--bare", is_flag=True, help="Only Kubernetes and the GPU API: without our controller, agents and console."
)
def command(
    *,
    name: str,
    nodes: int | None,
    real_nodes: int,
    profile: str,
    cards: int,
    port: int | None,
    timeout: float,
    bare: bool,
) -> None:
    """Start a real Kubernetes control plane on this machine, with the GPU API, our controller, simulated agents
    and the console.

    Nothing needs root and nothing outside your home folder is touched, your kubeconfig included; only real nodes do,
    as containers need it. Programs that are missing are downloaded, or built when no download host can be reached
    (5 to 10 minutes, once).

    Running it again is safe: it starts what is down and keeps what is there.
    """
    from gpu_control_plane.agent.simulated.machine import new_machine  # noqa: PLC0415
    from gpu_control_plane.cli.screen import OK, Screen  # noqa: PLC0415
    from gpu_control_plane.cli.sidecars import console_address, install_local_webhooks, sidecars  # noqa: PLC0415
    from gpu_control_plane.cli.summary import show_summary  # noqa: PLC0415
    from gpu_control_plane.local.folders import cluster_folder  # noqa: PLC0415
    from gpu_control_plane.local.lifecycle import UpOptions, bring_up, start_sidecar, stop_sidecar  # noqa: PLC0415
    from gpu_control_plane.local.status import cluster_status  # noqa: PLC0415

    source = click.get_current_context().get_parameter_source
    if not real_nodes and click.core.ParameterSource.COMMANDLINE in (source("profile"), source("cards")):
        raise click.UsageError(
            "--profile and --cards go with --real-node. For simulated nodes with cards, once the cluster is up:"
            f" kubectl gpu simulate nodes --profile {profile} --cards {cards}"
        )
    machine = new_machine(profile, cards)
    wanted = UpOptions(name=name, nodes=nodes, real_nodes=real_nodes, port=port, timeout=timeout)
    progress = Screen(sys.stderr)
    result = bring_up(wanted, progress, _install_api if bare else _install_guarded_api)
    if result.real_nodes:
        with progress.step(f"Giving cards to {', '.join(result.real_nodes)}"):
            _install_cards(cluster_folder(name) / "kubeconfig", [*result.real_nodes], machine)
    programs = sidecars(name, result.real_nodes, running=result.was_running)
    if not bare:
        install_local_webhooks(cluster_folder(name) / "kubeconfig", programs)
    for sidecar in programs:
        if bare:
            stop_sidecar(name, sidecar.name)
            continue
        with progress.step(f"Starting {sidecar.name}"):
            start_sidecar(name, sidecar)
    screen = Screen(sys.stdout)
    for sentence in result.resources:
        screen.note(sentence)
    if result.was_running:
        screen.mark(OK, f"The cluster {name} was already running.")
    show_summary(screen, cluster_status(name), console=console_address(name))


def _install_api(kubeconfig: Path) -> list[str]:
    from gpu_control_plane.installation.crds import install_crds  # noqa: PLC0415

    return install_crds(kubeconfig)


def _install_guarded_api(kubeconfig: Path) -> list[str]:
    """With the policies that keep pods out of pools; they need the controller, which says whom pools admit."""
    from gpu_control_plane.installation.policies import install_policies  # noqa: PLC0415

    return [*_install_api(kubeconfig), *install_policies(kubeconfig)]


def _install_cards(kubeconfig: Path, nodes: list[str], machine: "Machine") -> None:
    import asyncio  # noqa: PLC0415

    from gpu_control_plane.agent.fleet.machines import install_cards  # noqa: PLC0415
    from gpu_control_plane.kube import Client, load_config  # noqa: PLC0415

    async def connected() -> None:
        async with Client(load_config(kubeconfig)) as client:
            await install_cards(client, nodes, machine)

    asyncio.run(connected())
