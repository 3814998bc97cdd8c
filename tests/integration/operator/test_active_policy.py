"""Which nodes are in which upgrade group, with a real API server."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, PRE_INSTALLED, TRUE, NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime, Signal
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.gpu_cluster import GPUClusterWatch
from gpu_control_plane.operator.labelling.decide import DriverOwner
from gpu_control_plane.operator.nvidia_lease import NVIDIALeaseWatch
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.upgrade.groups import CLUSTER_POLICY, UpgradeGroup
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces
from integration.running import running
from unit.api.nvidia.stock import stock_policy
from waiting import until

DRIVER = f"{DEPLOY}driver"
NODES: dict[str, dict[str, str]] = {
    "ours": {DRIVER: TRUE},
    "paused": {DRIVER: "paused-for-driver-upgrade"},
    "stripped": {},
    "host": {DRIVER: PRE_INSTALLED},
    "without": {DRIVER: "false"},
    "off": {str(NodeLabel.OPERANDS): "false"},
}
UPGRADED = {"ours", "paused", "stripped"}


class FakeOwners:
    """NVIDIADrivers that own all nodes, whether or not these get a driver."""

    def __init__(self, nodes: frozenset[str]) -> None:
        self.nodes = nodes
        self.changed = Signal("owners")

    def owner(self, _node: Node) -> DriverOwner | None:
        return None

    def upgrade_groups(self) -> Sequence[UpgradeGroup]:
        return (UpgradeGroup("pool-a", None, self.nodes),)

    def have_daemonsets(self) -> bool:
        return False


class Fleet:
    """Some nodes of a cluster that other tests use, too."""

    def __init__(self, runtime: Runtime, names: Mapping[str, str]) -> None:
        owners = FakeOwners(frozenset(names.values()))
        lease = NVIDIALeaseWatch(runtime, TrustedNamespaces().include)
        self.active_policy = ActivePolicy(
            runtime, lease, owners, openshift=OpenShiftWatch(runtime), gpu_clusters=GPUClusterWatch(runtime)
        )
        self._names = {name: short for short, name in names.items()}

    def in_group(self, group: str) -> set[str]:
        """The nodes of this test that are in an upgrade group."""
        found = {each.name: each.nodes for each in self.active_policy.upgrade_groups() or ()}
        return {self._names[name] for name in found.get(group, ()) if name in self._names}


@asynccontextmanager
async def fleet(client: Client, driver: Mapping[str, Any]) -> AsyncIterator[Fleet]:
    await install(client)
    names = {short: f"{short}-{secrets.token_hex(3)}" for short in NODES}
    for short, labels in NODES.items():
        held = {str(NodeLabel.PRESENT): TRUE, **labels}
        await client.create(Node, {"metadata": {"name": names[short], "labels": held}})
    manifest = stock_policy()
    manifest["spec"]["driver"].update(driver)
    runtime = Runtime("test-active-policy", config=client.config, elect=False, status_port=None)
    made = Fleet(runtime, names)
    try:
        async with running(runtime):
            await client.create(StoredClusterPolicy, manifest)
            await until(lambda: made.active_policy.current() is not None and made.active_policy.nodes.is_synced)
            yield made
    finally:
        await client.delete(StoredClusterPolicy, manifest["metadata"]["name"])
        for name in names.values():
            await client.delete(Node, name)


@pytest.mark.parametrize(
    ("driver", "group"),
    [({}, CLUSTER_POLICY), ({"useNvidiaDriverCRD": True}, "pool-a")],
    ids=["ClusterPolicy", "NVIDIADrivers"],
)
async def test_only_nodes_that_get_their_driver_from_us_are_upgraded_and_counted(
    client: Client, driver: Mapping[str, Any], group: str
) -> None:
    async with fleet(client, driver) as seen:
        assert seen.in_group(group) == UPGRADED
