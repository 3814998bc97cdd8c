"""The agents' exporter for all simulated nodes, as a program: `python -m monitoring.card_exporter --status-port 9400`.

The agent of a real node needs a kubelet. What watches the cards, counts their error reports and answers scrapes is the
agent's own code here; only who holds a card comes from the API server instead of the kubelet.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpu_control_plane.agent.backends.interface import Backend, BackendError
from gpu_control_plane.agent.node.exporting import CardMetrics
from gpu_control_plane.agent.node.hardware_watch import HardwareWatch
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import read_machine
from gpu_control_plane.agent.views import DeviceView, NodeView
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.kube import Cache, Runtime, main


class SimulatedNode:
    """One node: its hardware follows the Node's annotation, its users the GPUDevices."""

    def __init__(self, name: str, nodes: Cache[NodeView], cards: Cache[DeviceView]) -> None:
        self._name = name
        self._nodes = nodes
        self._cards = cards
        self._backend: SimulatedBackend | None = None
        self.watch = HardwareWatch(name, self._open, self._news, interval=1.0)
        self.metrics = CardMetrics(name, self.watch, self._users)
        nodes.on_change(lambda _old, new: self._follow(new))

    async def run(self) -> None:
        await self._nodes.synced()
        await self._cards.synced()
        self.watch.acquire_driver()
        await self.watch.run()

    def _open(self) -> Backend:
        node = self._nodes.get(self._name)
        machine = read_machine(self._name, node.metadata.annotations) if node else None
        if machine is None:
            raise BackendError("the node has no cards yet")
        self._backend = SimulatedBackend(self._name, machine)
        return self._backend

    def _follow(self, node: NodeView | None) -> None:
        if node is not None and node.name == self._name and self._backend is not None:
            machine = read_machine(self._name, node.metadata.annotations)
            if machine is not None:
                self._backend.update(machine)

    def _news(self) -> None:
        if self._backend is not None:
            self._backend.occupy(frozenset(self._users()))
        if self.watch.snapshot is not None:
            self.metrics.describe(self.watch.snapshot)

    def _users(self) -> Mapping[str, Sequence[User]]:
        mine = (card for card in self._cards if card.spec.node_name == self._name)
        return {card.spec.pci_address: card.status.used_by for card in mine if card.status.used_by}


def building(names: Sequence[str]) -> Callable[[Runtime], None]:
    def build(runtime: Runtime) -> None:
        nodes, cards = runtime.cache(NodeView), runtime.cache(DeviceView)
        for name in names:
            node = SimulatedNode(name, nodes, cards)
            runtime.service(node.run)
            runtime.status.add_metrics(node.metrics.exposition)

    return build


if __name__ == "__main__":
    kubeconfig, port, *nodes = sys.argv[1:]
    sys.exit(
        main(
            "cards",
            building(nodes),
            kubeconfig=Path(kubeconfig),
            elect=False,
            status_host="127.0.0.1",
            status_port=int(port),
        )
    )
