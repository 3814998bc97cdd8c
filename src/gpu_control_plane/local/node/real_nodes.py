"""The real nodes of one cluster, and the addresses they have while they run."""

import contextlib
import ipaddress
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_control_plane.local.certificates import Authority
from gpu_control_plane.local.components import ClusterPlan, Component, Settings
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.node import dns
from gpu_control_plane.local.node.network import MOST_NODES, AddressesTaken, Network, last_network, leased_network
from gpu_control_plane.local.node.program import NodeProgram
from gpu_control_plane.local.node.real_node import NodeContext, RealNode, Services, clear_leftovers
from gpu_control_plane.local.node.requirements import system_programs
from gpu_control_plane.local.node.router import running_router
from gpu_control_plane.local.node.shortcut import shortcut
from gpu_control_plane.local.programs import Binaries
from gpu_control_plane.local.progress import Progress
from gpu_control_plane.local.sync_client import SyncClient
from gpu_control_plane.local.versions import NODE_PROGRAMS, SERVICE_PROGRAMS

NODES_FOLDER = "nodes"
_GROUP = "system:nodes"
_PROXY = "system:kube-proxy"
_DNS_INDEX = 10  # by convention, the tenth service address


class RealNodes(Mapping[str, RealNode]):
    """By name. Nodes exist from `start` to `stop`; their disks outlive them."""

    def __init__(self, folder: Path, settings: Settings, binaries: Binaries) -> None:
        self._folder = folder
        self._names = settings.nodes
        self._settings = settings
        self._binaries = binaries
        self._nodes: dict[str, RealNode] = {}
        self._network: Network | None = None
        self._router = 0
        self._held = contextlib.ExitStack()

    def __getitem__(self, name: str) -> RealNode:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def programs(self) -> list[NodeProgram]:
        """All that runs for the nodes, in the order of starting."""
        return [program for node in self._nodes.values() for program in node.programs]

    def claim(self) -> Network | None:
        """Make sure that nodes can run here, and lease a network for them, from which no packet leaves the host."""
        if not self._names:
            clear_nodes(self._folder)
            return None
        if len(self._names) > MOST_NODES:
            raise LocalError(f"A cluster has at most {MOST_NODES} real nodes, and {len(self._names)} were asked for.")
        needed = [*NODE_PROGRAMS, *(SERVICE_PROGRAMS if self._settings.services else ())]
        missing = [program for program in needed if program not in self._binaries.programs]
        if missing:
            raise LocalError(f"No binaries were given for {', '.join(missing)}. Ask ensure_binaries for them too.")
        required = {Component.CONTROLLER_MANAGER, Component.SCHEDULER}
        if self._settings.services and not required <= set(self._settings.components):
            raise LocalError(f"Services need {' and '.join(sorted(required))}. Name them among the components, too.")
        system_programs(services=self._settings.services)
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._network = self._held.enter_context(leased_network(self._folder))
        self._router = self._held.enter_context(running_router(self._network))
        return self._network

    def start(self, plan: ClusterPlan, client: SyncClient, progress: Progress) -> None:
        """Start every node, all at once, and return when all are ready, and their services, too."""
        if self._network is None:
            return
        if not self._nodes:
            self._nodes = self._make(self._network, plan, client)
        title = f"Starting the {'node' if len(self._nodes) == 1 else 'nodes'} {', '.join(self._nodes)}"
        with progress.step(title), ThreadPoolExecutor(len(self._nodes)) as threads:
            list(threads.map(RealNode.start, self._nodes.values()))
        if self._settings.services:
            with progress.step("Starting CoreDNS"):
                dns.install(client, plan.ports.apiserver, _dns_address(plan), tuple(self._nodes))
                dns.wait_for_answers(_dns_address(plan), self._settings.start_timeout)

    def stop(self) -> None:
        """Stop every node, whatever happens to the others, and release the network."""
        with self._held:
            for node in self._nodes.values():
                self._held.callback(node.stop)
            self._nodes, self._network = {}, None

    def _make(self, network: Network, plan: ClusterPlan, client: SyncClient) -> dict[str, RealNode]:
        authority = Authority(plan.folder / "pki")
        system = system_programs(services=self._settings.services)
        services = None
        if self._settings.services:
            services = Services(dns=_dns_address(plan), proxy=authority.client("kube-proxy", _PROXY))
        nodes = {}
        for index, name in enumerate(self._names):
            attachment = network.attachment(index)
            context = NodeContext(
                server=f"https://{network.gateway}:{plan.ports.apiserver}",
                authority=authority.pair.certificate,
                identity=authority.client(f"node-{name}", f"system:node:{name}", _GROUP),
                serving=authority.server(f"kubelet-{name}", [attachment.address, name]),
                attachment=attachment,
                router=self._router,
                services=services,
                client=client,
                port=plan.ports.apiserver,
                timeout=plan.settings.start_timeout,
            )
            nodes[name] = RealNode(name, self._folder / name, context, self._binaries, system)
        return nodes


def node_shortcuts(folder: Path, names: tuple[str, ...]) -> dict[str, Path]:
    """Short paths to the folders of the nodes of a running cluster, by name."""
    network = last_network(folder)
    if network is None:
        return {}
    return {name: shortcut(network.attachment(index).interface) for index, name in enumerate(names)}


def clear_nodes(folder: Path) -> None:
    """Remove what the nodes of a killed cluster process left. Harmless where there were none."""
    if last_network(folder) is None:
        return
    # Another cluster that has this network by now has removed the leftovers itself.
    with contextlib.suppress(AddressesTaken), leased_network(folder) as network:
        for index in range(MOST_NODES):
            clear_leftovers(network.attachment(index).interface)


def _dns_address(plan: ClusterPlan) -> str:
    return str(ipaddress.ip_network(plan.service_cidr)[_DNS_INDEX])
