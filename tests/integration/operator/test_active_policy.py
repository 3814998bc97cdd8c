"""Which nodes an upgrade of drivers is about, as a process with a real API server answers it."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, PRE_INSTALLED, TRUE, NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.installation.crds import install
from gpu_control_plane.kube import Client, Runtime
from gpu_control_plane.operator.active_policy import Charge
from gpu_control_plane.operator.labelling import OwnerWish
from gpu_control_plane.operator.nvidia_lease import RivalWatch
from gpu_control_plane.operator.upgrade.groups import THE_POLICYS, Campaign
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
GOVERNED = {"ours", "paused", "stripped"}


class Theirs:
    """NVIDIADrivers that govern all nodes, whatever is meant for them."""

    def __init__(self, nodes: frozenset[str]) -> None:
        self.nodes = nodes

    def owner(self, _node: Node) -> OwnerWish | None:
        return None

    def campaigns(self) -> Sequence[Campaign]:
        return (Campaign("pool-a", None, self.nodes),)

    def leaving(self) -> bool:
        return False


class Fleet:
    """Some nodes of a cluster that other tests use, too."""

    def __init__(self, runtime: Runtime, names: Mapping[str, str]) -> None:
        self.charge = Charge(runtime, RivalWatch(runtime))
        self.charge.drivers = Theirs(frozenset(names.values()))
        self._names = {name: short for short, name in names.items()}

    def governed(self, campaign: str) -> set[str]:
        """The nodes of ours that belong to a campaign."""
        found = {each.name: each.nodes for each in self.charge.all() or ()}
        return {self._names[name] for name in found.get(campaign, ()) if name in self._names}


@asynccontextmanager
async def fleet(client: Client, driver: Mapping[str, Any]) -> AsyncIterator[Fleet]:
    await install(client)
    names = {short: f"{short}-{secrets.token_hex(3)}" for short in NODES}
    for short, labels in NODES.items():
        held = {str(NodeLabel.PRESENT): TRUE, **labels}
        await client.create(Node, {"metadata": {"name": names[short], "labels": held}})
    manifest = stock_policy()
    manifest["spec"]["driver"].update(driver)
    runtime = Runtime("test-charge", config=client.config, elect=False, status_port=None)
    made = Fleet(runtime, names)
    try:
        async with running(runtime):
            await client.create(StoredClusterPolicy, manifest)
            await until(lambda: made.charge.in_force() is not None and made.charge.nodes.is_synced)
            yield made
    finally:
        await client.delete(StoredClusterPolicy, manifest["metadata"]["name"])
        for name in names.values():
            await client.delete(Node, name)


@pytest.mark.parametrize(
    ("driver", "campaign"),
    [({}, THE_POLICYS), ({"useNvidiaDriverCRD": True}, "pool-a")],
    ids=["ClusterPolicy", "NVIDIADrivers"],
)
async def test_only_nodes_that_get_their_driver_from_us_are_upgraded_and_counted(
    client: Client, driver: Mapping[str, Any], campaign: str
) -> None:
    async with fleet(client, driver) as seen:
        assert seen.governed(campaign) == GOVERNED
