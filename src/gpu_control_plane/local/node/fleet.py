"""The real nodes of one cluster, and the network that is theirs while they run."""

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_control_plane.local.access import Access
from gpu_control_plane.local.certificates import Authority
from gpu_control_plane.local.components import Plan
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.node.network import MOST_NODES, Network, leased_network
from gpu_control_plane.local.node.real import RealNode, Surroundings, clear_leftovers
from gpu_control_plane.local.node.requirements import system_programs
from gpu_control_plane.local.programs import Binaries
from gpu_control_plane.local.progress import Progress
from gpu_control_plane.local.versions import NODE_PROGRAMS

NODES_FOLDER = "nodes"
_GROUP = "system:nodes"


class RealNodes(Mapping[str, RealNode]):
    """By name. Nodes exist from `start` to `stop`; their disks outlive them."""

    def __init__(self, folder: Path, names: tuple[str, ...], binaries: Binaries) -> None:
        self._folder = folder
        self._names = names
        self._binaries = binaries
        self._nodes: dict[str, RealNode] = {}
        self._network: Network | None = None
        self._held = contextlib.ExitStack()

    def __getitem__(self, name: str) -> RealNode:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def claim(self) -> str | None:
        """Make sure that nodes can run here, and take a network for them; the address this machine has in it."""
        if not self._names:
            clear_nodes(self._folder)
            return None
        if len(self._names) > MOST_NODES:
            raise LocalError(f"A cluster has at most {MOST_NODES} real nodes, and {len(self._names)} were asked for.")
        missing = [program for program in NODE_PROGRAMS if program not in self._binaries.programs]
        if missing:
            raise LocalError(f"No binaries were given for {', '.join(missing)}. Ask ensure_binaries for them too.")
        system_programs()
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._network = self._held.enter_context(leased_network(self._folder))
        return self._network.gateway

    def start(self, plan: Plan, access: Access, progress: Progress) -> None:
        """Start every node, all at once, and return when all are ready."""
        if self._network is None:
            return
        if not self._nodes:
            self._nodes = self._make(self._network, plan, access)
        title = f"Starting the {'node' if len(self._nodes) == 1 else 'nodes'} {', '.join(self._nodes)}"
        with progress.step(title), ThreadPoolExecutor(len(self._nodes)) as threads:
            list(threads.map(RealNode.start, self._nodes.values()))

    def stop(self) -> None:
        """Stop every node, whatever happens to the others, and give the network back."""
        with self._held:
            for node in self._nodes.values():
                self._held.callback(node.stop)
            self._nodes, self._network = {}, None

    def _make(self, network: Network, plan: Plan, access: Access) -> dict[str, RealNode]:
        authority = Authority(plan.folder / "pki")
        system = system_programs()
        nodes = {}
        for index, name in enumerate(self._names):
            attachment = network.attachment(index, plan.settings.service_cidr)
            surroundings = Surroundings(
                server=f"https://{network.gateway}:{plan.ports.apiserver}",
                authority=authority.pair.certificate,
                client=authority.client(f"node-{name}", f"system:node:{name}", _GROUP),
                serving=authority.server(f"kubelet-{name}", [attachment.address, name]),
                attachment=attachment,
                access=access,
                port=plan.ports.apiserver,
                timeout=plan.settings.start_timeout,
            )
            nodes[name] = RealNode(name, self._folder / name, surroundings, self._binaries, system)
        return nodes


def clear_nodes(folder: Path) -> None:
    """Clear what the nodes of a killed owner left. Harmless where there were none."""
    if folder.exists():
        with leased_network(folder) as network:
            for index in range(MOST_NODES):
                clear_leftovers(network.interface(index))
