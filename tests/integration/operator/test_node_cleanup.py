"""Uninstalling takes off all labels of the stack that are ours, and none that are another operator's."""

import secrets
from collections.abc import AsyncIterator

import pytest

from fault_proxy import Fault, FaultProxy
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import DEPLOY, LEASE, PCI_LABELS, TRUE, NodeAnnotation, NodeLabel
from gpu_control_plane.installation.crds import install
from gpu_control_plane.installation.uninstall import clean_up
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.operator.node_cleanup import clean_nodes
from gpu_control_plane.operator.upgrade.actions import PAUSED
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces

CARD = {PCI_LABELS[0]: TRUE, NodeLabel.MIG_CONFIG.value: "all-1g.10gb", "zone": "a"}
STACK = {
    NodeLabel.PRESENT.value: TRUE,
    NodeLabel.DRIVER_OWNER.value: "pool-a",
    f"{DEPLOY}driver": TRUE,
    f"{DEPLOY}device-plugin": "agent",
    f"{DEPLOY}mig-manager": TRUE,
    f"{DEPLOY}vgpu-manager": "",
}
OURS = {NodeLabel.RUNTIME.value: "containerd"}
LOST = {NodeLabel.PRESENT.value: "false", "zone": "a"}
USUAL = TrustedNamespaces()
INITIAL = NodeAnnotation.INITIALLY_UNSCHEDULABLE.value
UPGRADES = {NodeAnnotation.UPGRADE_ENABLED.value: TRUE, "note": "mine"}


@pytest.fixture
async def machine(client: Client) -> AsyncIterator[str]:
    """The name of a node that our controllers have labelled, and no other: nodes that other tests have left behind are
    cleaned first."""
    await install(client)
    await clean_nodes(client, USUAL)
    name = f"machine-{secrets.token_hex(3)}"
    meta = {"name": name, "labels": CARD | STACK | OURS, "annotations": UPGRADES}
    await client.create(Node, {"metadata": meta})
    yield name
    await client.delete(Node, name)


@pytest.fixture
async def nvidia_operator(client: Client, namespace: str) -> AsyncIterator[str]:
    """NVIDIA's operator is active. Its Lease is deleted after the test, since it would stop other tests' operators."""
    spec = {"holderIdentity": "theirs", "leaseDurationSeconds": 15, "renewTime": micro_time(utc_now())}
    await client.create(TimedLease, {"metadata": {"name": LEASE}, "spec": spec}, namespace)
    yield namespace
    await client.delete(TimedLease, LEASE, namespace)


async def test_uninstalling_takes_the_stack_off_nodes_and_can_be_repeated(client: Client, machine: str) -> None:
    await client.create(Node, {"metadata": {"name": f"{machine}-lost", "labels": LOST}})
    said: list[str] = []
    for _ in range(2):
        await clean_up(client, feature_labels=False, crds=False, timeout=0.0, report=said.append)
    found = await client.get(Node, machine)
    assert found.metadata.labels == CARD
    assert found.metadata.annotations == {"note": "mine"}
    assert (await client.get(Node, f"{machine}-lost")).metadata.labels == {"zone": "a"}
    taken = [line for line in said if "software stack" in line]
    assert taken[1] == "Nodes from which the software stack was taken off: 0."
    assert taken[0] != taken[1]


@pytest.mark.parametrize(("before", "cordoned"), [({}, False), ({INITIAL: TRUE}, True)], ids=["by us", "by a person"])
async def test_an_upgrade_that_was_under_way_leaves_no_trace(
    client: Client, machine: str, before: dict[str, str], cordoned: bool
) -> None:
    marks = {
        "labels": {NodeLabel.UPGRADE_STATE.value: "pod-restart-required", NodeLabel.AGENT.value: PAUSED},
        "annotations": {NodeAnnotation.STARTED.value: "1", NodeAnnotation.STEP_SINCE.value: "2", **before},
    }
    await client.patch(Node, machine, {"metadata": marks, "spec": {"unschedulable": True}})
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        await clean_nodes(counted, USUAL)
        assert len(proxy.writes) == 1
    found = await client.get(Node, machine)
    assert found.metadata.labels == CARD
    assert found.metadata.annotations == {"note": "mine"}
    assert found.spec.unschedulable is cordoned


async def test_labels_stay_while_nvidias_operator_is_active(client: Client, machine: str, nvidia_operator: str) -> None:
    await clean_nodes(client, TrustedNamespaces(frozenset({nvidia_operator})))
    found = await client.get(Node, machine)
    assert found.metadata.labels == CARD | STACK
    assert found.metadata.annotations == UPGRADES


@pytest.mark.usefixtures("nvidia_operator")
async def test_a_lease_of_a_namespace_that_is_not_trusted_keeps_nothing(client: Client, machine: str) -> None:
    await clean_nodes(client, USUAL)
    assert (await client.get(Node, machine)).metadata.labels == CARD


async def test_labels_stay_if_leases_may_not_be_read(client: Client, machine: str) -> None:
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as restricted:
        proxy.plant(Fault(when=lambda r: r.path.endswith("/leases"), status=403, reason="Forbidden"))
        await clean_nodes(restricted, USUAL)
    assert (await client.get(Node, machine)).metadata.labels == CARD | STACK


async def test_labels_of_a_cluster_that_we_never_labelled_stay(client: Client, machine: str) -> None:
    await client.patch(Node, machine, {"metadata": {"labels": dict.fromkeys(OURS)}})
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as counted:
        assert await clean_nodes(counted, USUAL) == 0
        assert proxy.writes == []
    assert (await client.get(Node, machine)).metadata.labels == CARD | STACK


async def test_a_node_that_changes_meanwhile_is_retried(client: Client, machine: str) -> None:
    """The list is outdated when the node is patched, since the kubelet has written meanwhile."""
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as late:
        touched = False

        async def touch(request: object) -> None:
            nonlocal touched
            if not touched and getattr(request, "is_write", False):
                touched = True
                await client.patch(Node, machine, {"metadata": {"annotations": {"note": "newer"}}})

        proxy.on_request = touch
        await clean_nodes(late, USUAL)
    found = await client.get(Node, machine)
    assert found.metadata.labels == CARD
    assert found.metadata.annotations == {"note": "newer"}


async def test_a_node_that_is_gone_meanwhile_needs_nothing(client: Client, machine: str) -> None:
    second = f"{machine}-gone"
    await client.create(Node, {"metadata": {"name": second, "labels": CARD | STACK | OURS}})
    async with FaultProxy.before(client.config) as proxy, Client(proxy.config) as late:

        async def remove(request: object) -> None:
            if getattr(request, "is_write", False):
                try:
                    await client.delete(Node, second)
                except NotFound:
                    return

        proxy.on_request = remove
        await clean_nodes(late, USUAL)
    assert (await client.get(Node, machine)).metadata.labels == CARD
