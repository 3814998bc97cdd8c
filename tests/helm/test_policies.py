"""An agent can change the objects of its own node and no others, each refusal with its own sentence.

The tokens are those of the agents' pods on two nodes, asked for as a kubelet asks for them.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFeature, discovery_name, feature_name
from gpu_control_plane.installation.policies import policies
from gpu_control_plane.kube import Client, FieldManager, Object, load_config
from gpu_control_plane.kube.errors import Forbidden, Invalid
from gpu_control_plane.kube.events import Event
from helm.chart import NAMESPACE, Manifest
from helm.installed import Installed
from waiting import until_async

OURS, OTHERS = "node-c", "node-d"
AGENT, DISCOVERY = "gpu-control-plane-agent", "gpu-control-plane-discovery"
POLICIES = (
    *(f"gpu-control-plane-own-{name}" for name in ("node-state", "cards", "reports", "events", "node")),
    *(policy["metadata"]["name"] for policy in policies(NAMESPACE) if policy["kind"] == "ValidatingAdmissionPolicy"),
)

READING = {"status": {"telemetry": {"temperature": 40, "at": "2026-01-01T00:00:00Z"}}}
ANSWER = {"status": {"plugin": {"observedGeneration": 1}}}
CONDITION = {"status": "True", "reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
BOUND = "The token names no node, so nobody can say whose agent this is"


class Asking:
    """One request to the API server as a program of the chart, from its pod on some node or from nowhere."""

    def __init__(self, installed: Installed, account: str = AGENT, node: str | None = OURS) -> None:
        self._kubeconfig = installed.account(account, node)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with Client(load_config(self._kubeconfig)) as client:
            yield client

    async def patch(self, kind: type[Object], name: str, body: dict[str, Any], subresource: str | None = None) -> None:
        async with self.client() as client:
            await client.patch(kind, name, body, subresource=subresource)

    async def publish(self, name: str, about: str, **spec: object) -> None:
        body = {"metadata": {"labels": {NODE_LABEL: about}}, "spec": {"features": facts("1"), **spec}}
        async with self.client() as client:
            await client.apply(NodeFeature, name, body, manager=FieldManager("test"), namespace=NAMESPACE)

    async def tell(self, regarding: str, kind: str = "GPUNodeState") -> None:
        event = {
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "gpu-agent",
            "reportingInstance": "test",
            "action": "Test",
            "reason": "Test",
            "type": "Normal",
            "regarding": {"apiVersion": GPUNodeState.resource.api_version, "kind": kind, "name": regarding},
        }
        async with self.client() as client:
            name = f"{regarding}.{kind.lower()}"
            await client.apply(Event, name, event, manager=FieldManager("test"), namespace="default")


@pytest.fixture(autouse=True)
async def objects(installed: Installed) -> None:
    """What inventory would have made of the two nodes, and policies that are in force: that takes them a moment."""
    manager = FieldManager("inventory")
    async with Client(load_config(installed.cluster.kubeconfig)) as client:
        for node in (OURS, OTHERS):
            spec = {"nodeName": node, "pciAddress": "0000:18:00.0"}
            marks = {"gpu.deckhouse.io/clear-fault": "mended", "gpu.deckhouse.io/assignment": "research"}
            body = {"metadata": {"annotations": marks, "labels": {"team": "one"}}, "spec": spec}
            await client.apply(GPUNodeState, node, {}, manager=manager)
            await client.apply(GPUDevice, card(node), body, manager=manager)
    unbound = Asking(installed, node=None)
    writes: list[Callable[[], Awaitable[None]]] = [
        lambda: unbound.patch(GPUNodeState, OURS, {}, "status"),
        lambda: unbound.patch(GPUDevice, card(OURS), {}),
        lambda: unbound.publish(feature_name(OURS), OURS),
        lambda: unbound.patch(NodeView, OURS, {}),
        lambda: unbound.tell(OURS),
    ]
    for write in writes:
        await until_async(partial(is_refused, write), saying="every policy is in force")


async def is_refused(write: Callable[[], Awaitable[None]]) -> bool:
    try:
        await write()
    except Invalid:
        return True
    return False


def refused(sentence: str) -> AbstractContextManager[object]:
    """The policy answers with this sentence."""
    return pytest.raises(Invalid, match=re.escape(sentence))


def card(node: str) -> str:
    return f"{node}-0000-18-00-0"


def facts(boot: str) -> dict[str, Any]:
    return {"attributes": {"gpu.node": {"elements": {"bootID": boot}}}}


def annotations(**changes: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {name.replace("__", "/"): value for name, value in changes.items()}}}


async def test_kubernetes_finds_no_fault_in_the_policies(installed: Installed) -> None:
    for name in POLICIES:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
        policy = await _type_checked(installed, path)
        assert policy["status"].get("typeChecking", {}) == {}


async def _type_checked(installed: Installed, path: str) -> Manifest:
    """The policy, once the controller-manager has looked at it."""

    async def checked() -> bool:
        policy = installed.request("GET", path)
        return bool(policy.get("status", {}).get("observedGeneration") == policy["metadata"]["generation"])

    await until_async(checked, saying="the policy is checked")
    return installed.request("GET", path)


async def test_an_agent_answers_for_its_own_node(installed: Installed) -> None:
    await Asking(installed).patch(GPUNodeState, OURS, ANSWER, "status")


async def test_an_agent_does_not_answer_for_another_node(installed: Installed) -> None:
    sentence = "The agent of node-c may answer for its own node only, and this GPUNodeState is that of node-d."
    with refused(sentence):
        await Asking(installed).patch(GPUNodeState, OTHERS, ANSWER, "status")


@pytest.mark.parametrize("status", [{"deviceCount": 7}, {"driver": {"version": "1.0", "source": "Host"}}])
async def test_an_agent_changes_of_its_node_only_what_it_answers(installed: Installed, status: dict[str, Any]) -> None:
    with refused("An agent may change plugin, validation and quiesced in the status of its node"):
        await Asking(installed).patch(GPUNodeState, OURS, {"status": status}, "status")


@pytest.mark.parametrize(
    "status",
    [
        {"poolRef": {"name": "mine"}},
        {"state": "Assigned"},
        {"conditions": [{**CONDITION, "type": "Approved"}]},
    ],
    ids=["pool", "state", "condition"],
)
async def test_an_agent_says_nothing_of_pools(installed: Installed, status: dict[str, Any]) -> None:
    with refused("An agent may change users, readings, burn-in and health of its cards"):
        await Asking(installed).patch(GPUDevice, card(OURS), {"status": status}, "status")


async def test_an_agent_says_how_healthy_its_card_is(installed: Installed) -> None:
    status = {"conditions": [{**CONDITION, "type": "Healthy"}]}
    await Asking(installed).patch(GPUDevice, card(OURS), {"status": status}, "status")


async def test_an_agent_writes_events_about_its_own_node_only(installed: Installed) -> None:
    await Asking(installed).tell(OURS)
    await Asking(installed).tell(card(OURS), "GPUDevice")
    for regarding, kind in (
        (OTHERS, "GPUNodeState"),
        (OURS, "Node"),
        (card(OTHERS), "GPUDevice"),
        (card(f"{OURS}-2"), "GPUDevice"),
        (f"{OURS}-2", "GPUDevice"),
    ):
        with refused("The agent of node-c may write Events about its own GPUNodeState and its own cards only."):
            await Asking(installed).tell(regarding, kind)


async def test_an_agent_gives_no_orders(installed: Installed) -> None:
    with pytest.raises(Forbidden):
        await Asking(installed).patch(GPUNodeState, OURS, {"spec": {"assignments": []}})


async def test_an_agent_reports_about_its_own_cards(installed: Installed) -> None:
    await Asking(installed).patch(GPUDevice, card(OURS), READING, "status")


async def test_an_agent_does_not_report_about_cards_of_another_node(installed: Installed) -> None:
    sentence = f"The agent of node-c may report about its own cards only, and {card(OTHERS)} is in node-d."
    with refused(sentence):
        await Asking(installed).patch(GPUDevice, card(OTHERS), READING, "status")


async def test_an_agent_takes_a_persons_word_off_its_card(installed: Installed) -> None:
    await Asking(installed).patch(GPUDevice, card(OURS), annotations(**{"gpu.deckhouse.io__clear-fault": None}))
    with refused(f"{card(OTHERS)} is in node-d"):
        await Asking(installed).patch(GPUDevice, card(OTHERS), annotations(**{"gpu.deckhouse.io__clear-fault": None}))


@pytest.mark.parametrize(
    ("name", "value"), [("gpu.deckhouse.io/assignment", "mine"), ("gpu.deckhouse.io/assignment", None), ("new", "x")]
)
async def test_an_agent_approves_nothing(installed: Installed, name: str, value: str | None) -> None:
    body = {"metadata": {"annotations": {name: value}}}
    with refused("may take the annotation gpu.deckhouse.io/clear-fault off its cards, and change"):
        await Asking(installed).patch(GPUDevice, card(OURS), body)


@pytest.mark.parametrize(
    "metadata", [{"labels": {"team": "two"}}, {"labels": {"gpu.deckhouse.io/ignore": "true"}}, {"finalizers": ["a/b"]}]
)
async def test_an_agent_keeps_its_cards_as_they_are(installed: Installed, metadata: dict[str, Any]) -> None:
    with refused("An agent may not change labels, finalizers or owners of its cards."):
        await Asking(installed).patch(GPUDevice, card(OURS), {"metadata": metadata})


async def test_an_agent_publishes_about_its_own_node(installed: Installed) -> None:
    await Asking(installed).publish(feature_name(OURS), OURS)
    await Asking(installed).publish(feature_name(OURS), OURS, features=facts("2"))


async def test_an_agent_publishes_under_its_own_name_only(installed: Installed) -> None:
    with pytest.raises(
        Invalid, match="The report about node-c is called gpu-control-plane-node-c, not gpu-control-plan"
    ):
        await Asking(installed).publish(feature_name(OTHERS), OURS)


async def test_an_agent_cannot_pass_a_report_off_as_another_nodes(installed: Installed) -> None:
    with refused("which node a report is about: it has to be node-c."):
        await Asking(installed).publish(feature_name(OURS), OTHERS)


async def test_a_report_asks_for_no_labels(installed: Installed) -> None:
    with refused("it may not ask for labels on the Node."):
        await Asking(installed).publish(feature_name(OURS), OURS, labels={"trusted": "yes"})


async def test_discovery_publishes_about_its_own_node(installed: Installed) -> None:
    await Asking(installed, DISCOVERY).publish(discovery_name(OURS), OURS)


@pytest.mark.parametrize("name", [discovery_name(OTHERS), feature_name(OURS)])
async def test_discovery_publishes_under_its_own_name_only(installed: Installed, name: str) -> None:
    with refused(f"The report about node-c is called gpu-discovery-node-c, not {name}."):
        await Asking(installed, DISCOVERY).publish(name, OURS)


async def test_an_agent_labels_its_own_node(installed: Installed) -> None:
    labels = {"nvidia.com/gpu.count": "2", "gpu.deckhouse.io/deploy.agent": "true"}
    await Asking(installed).patch(NodeView, OURS, {"metadata": {"labels": labels}})
    await Asking(installed).patch(NodeView, OURS, {"metadata": {"labels": dict.fromkeys(labels)}})
    await Asking(installed).patch(NodeView, OURS, annotations(**{"nvidia.com__gfd": "x"}))


async def test_an_agent_does_not_label_another_node(installed: Installed) -> None:
    with refused("The agent of node-c may label its own Node only, not node-d."):
        await Asking(installed).patch(NodeView, OTHERS, {"metadata": {"labels": {"nvidia.com/gpu.count": "2"}}})


@pytest.mark.parametrize(
    "labels",
    [{"node-role.kubernetes.io/control-plane": ""}, {"kubernetes.io/hostname": "else"}, {"kubernetes.io/arch": None}],
    ids=["new", "changed", "removed"],
)
async def test_an_agent_changes_no_labels_of_others(installed: Installed, labels: dict[str, str | None]) -> None:
    with refused("only labels of its Node that begin with nvidia.com/ or gpu.deckhouse.io/."):
        await Asking(installed).patch(NodeView, OURS, {"metadata": {"labels": labels}})


@pytest.mark.parametrize("changes", [{"kwok.x-k8s.io__node": None}, {"a__b": "c"}], ids=["removed", "new"])
async def test_an_agent_changes_no_annotations_of_others(installed: Installed, changes: dict[str, str | None]) -> None:
    with refused("only annotations of its Node that begin with nvidia.com/ or gpu.deckhouse.io/."):
        await Asking(installed).patch(NodeView, OURS, annotations(**changes))


@pytest.mark.parametrize(
    "body", [{"spec": {"unschedulable": True}}, {"metadata": {"finalizers": ["a/b"]}}], ids=["cordon", "finalizer"]
)
async def test_an_agent_does_not_cordon(installed: Installed, body: dict[str, Any]) -> None:
    with refused("An agent may not taint, cordon or otherwise change its Node."):
        await Asking(installed).patch(NodeView, OURS, body)


async def test_a_token_from_nowhere_changes_nothing(installed: Installed) -> None:
    """Such as one that an administrator asked for, or that was stolen from a Secret."""
    asking = Asking(installed, node=None)
    with refused(BOUND):
        await asking.patch(GPUNodeState, OURS, ANSWER, "status")
    with refused(BOUND):
        await asking.patch(GPUDevice, card(OURS), READING, "status")
    with refused(BOUND):
        await asking.publish(feature_name(OURS), OURS)
    with refused(BOUND):
        await asking.patch(NodeView, OURS, {"metadata": {"labels": {"nvidia.com/gpu.count": "2"}}})


async def test_others_are_not_concerned(installed: Installed) -> None:
    """The policies are about agents: administrators and controllers go on as before."""
    async with Client(load_config(installed.cluster.kubeconfig)) as client:
        await client.patch(NodeView, OTHERS, {"metadata": {"labels": {"any": "thing"}}})
        await client.patch(GPUDevice, card(OTHERS), {"metadata": {"labels": {"any": "thing"}}})
