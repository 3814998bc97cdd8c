"""`make bench` and `make bench-scale`: ratios and counts measured in one run, against the API server's own limits."""

import asyncio
import sys

import click

from benchmarks import (
    admission,
    card_weight,
    commands,
    console,
    idle,
    join,
    node,
    pod_webhook,
    pooling,
    ray,
    stack,
    sync,
    writes,
)
from benchmarks.fleet import cluster_with
from benchmarks.report import Measurement, publish


@click.group(chain=True, context_settings={"help_option_names": ["-h", "--help"]})
def benchmarks() -> None:
    """Measure the runtime, the flow, the fleet, the agent and the stack, several of them in one go if you like."""


@benchmarks.command()
@click.option("--nodes", default=5000, show_default=True, help="Nodes of eight cards each.")
@click.option("--writes", "changed", default=5000, show_default=True, help="Objects the controller changes.")
@click.option("--idle", "seconds", default=60.0, show_default=True, help="Seconds to watch an idle process.")
def runtime(nodes: int, changed: int, seconds: float) -> bool:
    """The controller runtime on its own."""

    async def measure() -> list[Measurement]:
        async with cluster_with(nodes) as cluster:
            found = await sync.measure(cluster.kubeconfig)
            found += await writes.measure(cluster.kubeconfig, changed)
            return found + await idle.measure(cluster.kubeconfig, seconds)

    return publish("runtime", asyncio.run(measure()))


@benchmarks.command("pooling")
@click.option("--nodes", default=100, show_default=True, help="Nodes of eight cards each.")
def pooling_(nodes: int) -> bool:
    """A fleet from nothing to pooled, with controller and agents as processes of their own."""
    return publish("pooling", asyncio.run(pooling.measure(nodes)))


@benchmarks.command("console")
@click.option("--nodes", default=5000, show_default=True, help="Nodes of eight cards each.")
@click.option("--people", default=100, show_default=True, help="People who look.")
def console_(nodes: int, people: int) -> bool:
    """The web console with many people looking."""
    return publish("console", asyncio.run(console.measure(nodes, people)))


@benchmarks.command("card")
def card_() -> bool:
    """What a write of one card costs the API server."""
    return publish("card", asyncio.run(card_weight.measure()))


@benchmarks.command("commands")
@click.option("--nodes", default=5000, show_default=True, help="Nodes of eight cards each.")
def commands_(nodes: int) -> bool:
    """How long people wait for kubectl gpu."""
    return publish("commands", asyncio.run(commands.measure(nodes)))


@benchmarks.command("join")
@click.option("--nodes", default=1000, show_default=True, help="Nodes that join at once.")
@click.option("--cards", default=8, show_default=True, help="Cards of each.")
@click.option("--idle", "seconds", default=60.0, show_default=True, help="Seconds to watch the idle controller.")
def join_(nodes: int, cards: int, seconds: float) -> bool:
    """Inventory and bootstrap when a whole fleet joins, when nothing happens, and after a restart."""
    return publish("join", asyncio.run(join.measure(nodes, cards, seconds)))


@benchmarks.command("node")
@click.option("--changes", default=200, show_default=True, help="Changed orders.")
@click.option("--calls", default=2000, show_default=True, help="Calls of Allocate.")
@click.option("--idle", "seconds", default=60.0, show_default=True, help="Seconds to watch an idle agent.")
def node_(changes: int, calls: int, seconds: float) -> bool:
    """The agent on a real node with eight simulated cards. Needs Linux and root."""
    return publish("node", asyncio.run(node.measure(changes, calls, seconds)))


@benchmarks.command("stack")
@click.option("--nodes", default=1000, show_default=True, help="GPU nodes.")
@click.option("--idle", "seconds", default=130.0, show_default=True, help="Seconds to watch the idle operator.")
def stack_(nodes: int, seconds: float) -> bool:
    """A ClusterPolicy on a fleet with pod life, from nothing to quiet."""
    return publish("stack", asyncio.run(stack.measure(nodes, seconds)))


@benchmarks.command("ray")
@click.option("--clusters", default=500, show_default=True, help="RayClusters, each a head and two workers.")
def ray_(clusters: int) -> bool:
    """Many RayClusters at once, against a bare client that writes the same objects."""
    return publish("ray", asyncio.run(ray.measure(clusters)))


@benchmarks.command("webhook")
@click.option("--seconds", default=5.0, show_default=True, help="How long each round takes.")
def webhook_(seconds: float) -> bool:
    """What the pod webhook adds to the creation of a pod."""
    return publish("webhook", asyncio.run(pod_webhook.measure(seconds)))


@benchmarks.command("admission")
@click.option("--creations", default=300, show_default=True, help="Pods of each kind, for each number of pools.")
def admission_(creations: int) -> bool:
    """What the admission policies add to the creation of a pod."""
    return publish("admission", asyncio.run(admission.measure(creations)))


@benchmarks.result_callback()
def exit_code(met: list[bool]) -> None:
    """An aim that was missed is a failure, so that it is not overlooked."""
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    benchmarks(prog_name="python -m benchmarks")
