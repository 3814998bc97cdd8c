"""`kubectl gpu simulate`: simulated GPU nodes, and what can happen to the hardware of real ones.

The commands only write the hardware document of a Node; the agent fleet reacts to it as to real hardware.
"""

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpu_control_plane.cli import options
from gpu_control_plane.cli.options import cluster_name

if TYPE_CHECKING:
    from gpu_control_plane.agent.fleet.machines import SimulatedNode
    from gpu_control_plane.agent.simulated.machine import CardHistory, Machine
    from gpu_control_plane.kube import Client

_EXAMPLES = """\b
Examples:
  kubectl gpu simulate profiles                    models of cards, and which MIG can partition
  kubectl gpu simulate nodes --count 4 --profile H200-141 --cards 8
  kubectl gpu simulate list --cards                the names of all cards
  kubectl gpu simulate xid gpu-1-0000-18-00-0 79   a card falls off the bus
  kubectl gpu simulate heal gpu-1-0000-18-00-0
  kubectl gpu simulate slow gpu-2 30               everything takes gpu-2 half a minute longer

\b
The nodes come to life while their agents run:
  python -m gpu_control_plane.agent --simulated
"""

_MOST_NAMES = 5
"""More names than these do not help."""

_device = click.argument("device")
_kubeconfig = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Which cluster.  [default: KUBECONFIG, else the local cluster]",
)


def _cluster[**P](function: Callable[P, None]) -> Callable[P, None]:
    """Add the options that choose the cluster."""
    return cluster_name(_kubeconfig(function))


@click.group("simulate", short_help="Simulated GPU nodes: add them, break them, mend them.", epilog=_EXAMPLES)
def command() -> None:
    """Add simulated GPU nodes to a cluster, and let things happen to their hardware.

    DEVICE is the name of a GPUDevice, or NODE/ADDRESS such as gpu-1/0000:18:00.0.
    """


@command.command("nodes", epilog="Example: kubectl gpu simulate nodes --count 4 --profile H200-141 --cards 8")
@_cluster
@click.option("--count", type=click.IntRange(1, 5000), default=1, show_default=True, help="Nodes to have.")
@options.profile(help="Model of the cards.")
@options.cards(help="Cards in each node.")
@click.option("--prefix", default="gpu", show_default=True, help="Nodes are called PREFIX-1, PREFIX-2 and so on.")
def nodes(*, count: int, profile: str, cards: int, prefix: str, **cluster: Any) -> None:
    """Add simulated GPU nodes. Those that exist stay as they are.

    Profiles: A100-80, H100-80 and H200-141, which MIG can partition, L40S and RTX-3060, which it cannot.
    """
    from gpu_control_plane.agent.fleet.machines import add_nodes  # noqa: PLC0415
    from gpu_control_plane.agent.simulated.machine import new_machine  # noqa: PLC0415
    from gpu_control_plane.cli.screen import ATTENTION, Screen  # noqa: PLC0415
    from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415

    machine = new_machine(profile, cards)
    names = [f"{prefix}-{number}" for number in range(1, count + 1)]
    hardware = f"{cards} x {profile}"
    screen = Screen(sys.stderr)
    with screen.step(f"Adding {counted(count, 'node')} with {hardware}") as step:
        added = _run(
            cluster,
            lambda client: add_nodes(
                client, names, machine, progress=lambda done: step.detail(f"{done.count} of {count}")
            ),
        )
    made = f"{counted(len(added.created), 'node')} with {hardware} added" if added.created else "Nothing was added"
    equipped = f"; {counted(len(added.equipped), 'node')} that existed got {hardware}" if added.equipped else ""
    kept = f"; {counted(len(added.kept), 'node')} existed already" if added.kept else ""
    _report(f"{made}{equipped}{kept}.")
    if added.different:
        some = ", ".join(f"{name} ({held})" for name, held in list(added.different.items())[:_MOST_NAMES])
        more = f" and {len(added.different) - _MOST_NAMES} more" if len(added.different) > _MOST_NAMES else ""
        sentence = f"Other hardware was kept: {some}{more}. To replace a node, delete it: kubectl delete node NODE"
        Screen(sys.stdout).mark(ATTENTION, sentence)


@command.command("profiles", epilog="Example: kubectl gpu simulate profiles")
def profiles() -> None:
    """Show the models of cards that can be simulated, and what MIG can partition them into."""
    from gpu_control_plane.agent.simulated.models import PROFILES  # noqa: PLC0415
    from gpu_control_plane.cli.screen import OK, Screen  # noqa: PLC0415

    rows = [
        (
            name,
            f"{profile.memory_mib / 1024:.0f} GiB",
            "yes" if profile.nvlink else "no",
            " ".join(each.name for each in profile.mig.profiles)
            if profile.mig is not None
            else "cannot be partitioned",
        )
        for name, profile in PROFILES.items()
    ]
    Screen(sys.stdout).table(("PROFILE", "MEMORY", "NVLINK", "MIG PROFILES"), [(OK, row) for row in rows])


@command.command("xid", epilog="Example: kubectl gpu simulate xid gpu-1-0000-18-00-0 79")
@_device
@click.argument("code", type=int)
@_cluster
def xid(*, device: str, code: int, **cluster: Any) -> None:
    """Let the driver report the error CODE for a card."""
    from gpu_control_plane.agent.simulated.machine import report_xid  # noqa: PLC0415

    _change(cluster, device, lambda machine, address: report_xid(machine, address, code), f"reports XID {code}")


@command.command("ecc", epilog="Example: kubectl gpu simulate ecc gpu-1-0000-18-00-0")
@_device
@_cluster
def ecc(*, device: str, **cluster: Any) -> None:
    """Let an uncorrected error appear in a card's memory."""
    from gpu_control_plane.agent.simulated.machine import break_memory  # noqa: PLC0415

    _change(cluster, device, break_memory, "has an uncorrected memory error")


@command.command("lose", epilog="Example: kubectl gpu simulate lose gpu-1/0000:18:00.0")
@_device
@_cluster
def lose(*, device: str, **cluster: Any) -> None:
    """Let a card fall off the bus. It is still in the machine."""
    from gpu_control_plane.agent.simulated.machine import lose as change  # noqa: PLC0415

    _change(cluster, device, change, "is lost from the bus")


@command.command("pull", epilog="Example: kubectl gpu simulate pull gpu-1-0000-18-00-0")
@_device
@_cluster
def pull(*, device: str, **cluster: Any) -> None:
    """Take a card out of its machine. `heal` puts it back."""
    from gpu_control_plane.agent.simulated.machine import pull as change  # noqa: PLC0415

    _change(cluster, device, change, "was taken out")


@command.command("heal", epilog="Example: kubectl gpu simulate heal gpu-1-0000-18-00-0")
@_device
@_cluster
def heal(*, device: str, **cluster: Any) -> None:
    """Mend a card: no fault is left, and it is in its place."""
    from gpu_control_plane.agent.simulated.machine import heal as change  # noqa: PLC0415

    _change(cluster, device, change, "is in order")
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

    Screen(sys.stdout).note(
        "After a fault it returns when it has looked well for a minute. At once, if its fault is cleared:"
        f" kubectl annotate gpudevice {_device_name(device)} gpu.deckhouse.io/clear-fault=done"
    )


@command.command("swap", epilog="Example: kubectl gpu simulate swap gpu-1-0000-18-00-0")
@_device
@_cluster
def swap(*, device: str, **cluster: Any) -> None:
    """Put another card of the same model in a card's place: it has another UUID."""
    from gpu_control_plane.agent.simulated.machine import swap as change  # noqa: PLC0415

    _change(cluster, device, change, "is another card now")


@command.command("slow", epilog="Example: kubectl gpu simulate slow gpu-2 30")
@click.argument("node")
@click.argument("seconds", type=click.FloatRange(0, 3600))
@_cluster
def slow(*, node: str, seconds: float, **cluster: Any) -> None:
    """Let a node take SECONDS longer to react to anything; 0 makes it quick again."""
    from gpu_control_plane.agent.fleet.machines import edit_node  # noqa: PLC0415
    from gpu_control_plane.agent.simulated.machine import slow_down  # noqa: PLC0415

    _run(cluster, lambda client: edit_node(client, node, lambda machine: slow_down(machine, seconds)))
    _report(f"{node} takes {seconds:g} s to react." if seconds else f"{node} reacts at once.")


@command.command("reinstall", epilog="Example: kubectl gpu simulate reinstall gpu-2")
@click.argument("node")
@_cluster
def reinstall(*, node: str, **cluster: Any) -> None:
    """Install a node's system anew: same hardware, another boot id."""
    from gpu_control_plane.agent.fleet.machines import edit_node  # noqa: PLC0415
    from gpu_control_plane.agent.simulated.machine import reinstall as change  # noqa: PLC0415

    _run(cluster, lambda client: edit_node(client, node, change))
    _report(f"{node} was installed anew.")


@command.command("list", epilog="Example: kubectl gpu simulate list --cards")
@_cluster
@click.option("--cards", is_flag=True, help="One line for each card.")
def list_(*, cards: bool, **cluster: Any) -> None:
    """Show the simulated GPU nodes, and what is wrong with them."""
    from gpu_control_plane.agent.fleet.machines import list_machines  # noqa: PLC0415
    from gpu_control_plane.agent.simulated.machine import card_ids  # noqa: PLC0415
    from gpu_control_plane.cli.screen import ATTENTION, OK, Screen  # noqa: PLC0415

    found, unreadable = _run(cluster, list_machines)
    screen = Screen(sys.stdout)
    for error in unreadable:
        screen.mark(ATTENTION, str(error))
    if not found:
        screen.note("There are no simulated GPU nodes. Add some: kubectl gpu simulate nodes --count 4")
        return
    if cards:
        rows = [
            (
                ATTENTION if (changes := _card_changes(each.machine.of(address))) else OK,
                (card, each.machine.profile, _instances(each.machine, address), changes),
            )
            for each in found
            for card, address in card_ids(each.name, each.machine).items()
        ]
        screen.table(("CARD", "PROFILE", "MIG", ""), rows)
        return
    screen.table(
        ("NODE", "PROFILE", "CARDS", ""), [(ATTENTION if _changes(each) else OK, _row(each)) for each in found]
    )


def _instances(machine: "Machine", address: str) -> str:
    """The MIG instances of a card."""
    state = machine.state.get(address)
    if state is None or not state.enabled:
        return "-"
    return " ".join(instance.profile for instance in state.instances) or "on"


def _row(node: "SimulatedNode") -> tuple[str, ...]:
    return node.name, node.machine.profile, str(node.machine.cards), _changes(node)


def _changes(node: "SimulatedNode") -> str:
    machine = node.machine
    parts = [f"{address}: {changes}" for address, card in machine.history.items() if (changes := _card_changes(card))]
    if machine.slow_seconds:
        parts.append(f"slow by {machine.slow_seconds:g} s")
    if machine.reinstalled:
        parts.append(f"reinstalled {machine.reinstalled}x")
    return "; ".join(parts)


def _card_changes(card: "CardHistory") -> str:
    """What was done to a card, as people read it."""
    from gpu_control_plane.kube.sentences import counted  # noqa: PLC0415

    parts = [f"XID {code}" for code in card.xids]
    parts += [counted(card.ecc, "memory error")] if card.ecc else []
    parts += ["lost from the bus"] if card.lost else []
    parts += ["taken out"] if card.pulled else []
    parts += [f"swapped {card.swapped}x"] if card.swapped else []
    return ", ".join(parts)


def _change(cluster: dict[str, Any], device: str, edit: "Callable[[Machine, str], Machine]", outcome: str) -> None:
    from gpu_control_plane.agent.fleet.machines import edit_card  # noqa: PLC0415

    _run(cluster, lambda client: edit_card(client, device, edit))
    _report(f"{device} {outcome}.")


def _device_name(device: str) -> str:
    """The name of the GPUDevice, which people may write as NODE/ADDRESS."""
    from gpu_control_plane.api.identity import canonical_pci_address, inventory_id  # noqa: PLC0415

    node, slash, address = device.partition("/")
    return inventory_id(node, canonical_pci_address(address)) if slash else device


def _report(sentence: str) -> None:
    from gpu_control_plane.cli.screen import OK, Screen  # noqa: PLC0415

    Screen(sys.stdout).mark(OK, sentence)


def _run[T](cluster: dict[str, Any], work: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
    """Do the work on the cluster that the options name."""
    import asyncio  # noqa: PLC0415

    from gpu_control_plane.kube import Client, load_config  # noqa: PLC0415

    async def connected() -> T:
        async with Client(load_config(_find_kubeconfig(**cluster))) as client:
            return await work(client)

    return asyncio.run(connected())


def _find_kubeconfig(kubeconfig: Path | None, name: str) -> Path | None:
    """The file that was named, or KUBECONFIG as kubectl has it, else the local cluster, if it is named or exists."""
    import os  # noqa: PLC0415

    from gpu_control_plane.local.folders import cluster_folder  # noqa: PLC0415

    chosen = click.get_current_context().get_parameter_source("name")
    if kubeconfig is not None:
        return kubeconfig
    if os.environ.get("KUBECONFIG") and chosen is click.core.ParameterSource.DEFAULT:
        return None
    local = cluster_folder(name) / "kubeconfig"
    return local if local.exists() or chosen is not click.core.ParameterSource.DEFAULT else None
