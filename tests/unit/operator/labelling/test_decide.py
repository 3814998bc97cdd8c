"""Which labels a node gets: the published cases of NVIDIA's operator, what lies between them, and what is ours."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.node import Node, NodeInfo, NodeStatus
from gpu_control_plane.api.nvidia.choices import SandboxMode, Workload
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import AGENT, DEPLOY, PCI_LABELS, PRE_INSTALLED, TRUE, NodeAnnotation, NodeLabel
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.operator.labelling.decide import (
    Change,
    HostDriver,
    OwnerWish,
    Report,
    Subject,
    Wish,
    cleanup,
    decide,
    gets_driver,
    managed,
    wish_of,
)

P = {PCI_LABELS[0]: TRUE}
PRESENT = {NodeLabel.PRESENT.value: TRUE}
OWNER = NodeLabel.DRIVER_OWNER.value
MIG_CONFIG = NodeLabel.MIG_CONFIG.value
WORKLOAD = NodeLabel.WORKLOAD.value
OPERANDS = NodeLabel.OPERANDS.value
RUNTIME = NodeLabel.RUNTIME.value
ENABLED = NodeAnnotation.UPGRADE_ENABLED.value
PAUSED = "paused-for-driver-upgrade"
AGENT_PAUSED = f"agent_{PAUSED}"


def keys(*names: str, value: str = TRUE) -> dict[str, str]:
    return {f"{DEPLOY}{name}": value for name in names}


C = keys(
    *("driver", "gpu-feature-discovery", "container-toolkit", "device-plugin", "dcgm", "dcgm-exporter"),
    *("node-status-exporter", "operator-validator", "client"),
)
MIG = keys("mig-manager")
VFIO = keys("sandbox-device-plugin", "sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")
KATA = keys("kata-sandbox-device-plugin", "sandbox-validator", "vfio-manager", "kata-manager", "cc-manager", "client")
VGPU = keys("sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager", "sandbox-validator", "cc-manager", "client")
WISH = Wish(
    sandbox=False,
    default_workload=Workload.CONTAINER,
    mode=SandboxMode.KUBEVIRT,
    mig_manager=True,
    mig_default="",
    driver_enabled=True,
    upgrades=False,
    driver_crd=False,
)
SANDBOX = msgspec.structs.replace(WISH, sandbox=True)
KATA_MODE = msgspec.structs.replace(SANDBOX, mode=SandboxMode.KATA)
ALL_DISABLED = msgspec.structs.replace(WISH, mig_default="all-disabled")
UPGRADES = msgspec.structs.replace(WISH, upgrades=True)
DRIVER_CRD = msgspec.structs.replace(WISH, driver_crd=True)
CAPABLE = {NodeLabel.MIG_CAPABLE.value: TRUE}
A100 = {NodeLabel.PRODUCT.value: "NVIDIA-A100-SXM4-40GB"}


def node(
    labels: Mapping[str, str], annotations: Mapping[str, str] | None = None, runtime: str = "containerd://2.4.2"
) -> Node:
    return Node(
        metadata=ObjectMeta(name="worker-1", labels=dict(labels), annotations=dict(annotations or {})),
        status=NodeStatus(node_info=NodeInfo(container_runtime_version=runtime)),
    )


def after(before: Node, change: Change) -> Node:
    """The node once the change is written."""
    meta = before.metadata
    sides = (({**meta.labels}, change.labels), ({**meta.annotations}, change.annotations))
    for held, changes in sides:
        for key, value in changes.items():
            held.pop(key, None)
            if value is not None:
                held[key] = value
    return msgspec.structs.replace(
        before, metadata=msgspec.structs.replace(meta, labels=sides[0][0], annotations=sides[1][0])
    )


def labelled(labels: Mapping[str, str], wish: Wish, report: Report | None = None) -> dict[str, str]:
    """All labels of a node once it is as it should be, our own label left out: one test is about that."""
    subject = Subject(node(labels), report or Report())
    found = after(subject.node, decide(subject, wish)).metadata.labels
    return {name: value for name, value in found.items() if name != RUNTIME}


class Case(NamedTuple):
    before: dict[str, str]
    wish: Wish
    after: dict[str, str]


FOO = {WORKLOAD: "foo"}
PASSTHROUGH = {WORKLOAD: "vm-passthrough"}
VM_VGPU = {WORKLOAD: "vm-vgpu"}
OFF = {OPERANDS: "false"}
CASES = {
    "1": Case(P, WISH, P | PRESENT | C),
    "2": Case({PCI_LABELS[0]: "false"}, WISH, {PCI_LABELS[0]: "false"}),
    "3": Case(
        PRESENT | keys("driver", "mig-manager") | {MIG_CONFIG: "all-1g.10gb"},
        WISH,
        {NodeLabel.PRESENT.value: "false", MIG_CONFIG: "all-1g.10gb"},
    ),
    "4": Case(P | PASSTHROUGH, WISH, P | PASSTHROUGH | PRESENT | C),
    "5": Case(P | PASSTHROUGH, SANDBOX, P | PASSTHROUGH | PRESENT | VFIO),
    "6": Case(P | PASSTHROUGH, KATA_MODE, P | PASSTHROUGH | PRESENT | KATA),
    "7": Case(P | VM_VGPU, KATA_MODE, P | VM_VGPU | PRESENT | VGPU),
    "8": Case(P | FOO, SANDBOX, P | FOO | PRESENT | C),
    "9": Case(
        P | OFF | keys("driver") | CAPABLE,
        ALL_DISABLED,
        P | OFF | CAPABLE | PRESENT | {MIG_CONFIG: "all-disabled"},
    ),
    "10": Case(
        P | keys("driver", value=PAUSED) | keys("device-plugin", value="") | keys("dcgm", value="false"),
        WISH,
        P | PRESENT | C | keys("driver", value=PAUSED) | keys("dcgm", value="false"),
    ),
    "11": Case(P | CAPABLE, ALL_DISABLED, P | CAPABLE | PRESENT | C | MIG | {MIG_CONFIG: "all-disabled"}),
    "12": Case(
        P | CAPABLE | {MIG_CONFIG: "all-1g.10gb"},
        ALL_DISABLED,
        P | CAPABLE | PRESENT | C | MIG | {MIG_CONFIG: "all-1g.10gb"},
    ),
    "13": Case(P | A100, WISH, P | A100 | PRESENT | C | MIG),
    "14": Case(
        P | A100 | {NodeLabel.MIG_CAPABLE.value: "false"},
        WISH,
        P | A100 | {NodeLabel.MIG_CAPABLE.value: "false"} | PRESENT | C,
    ),
    "15": Case(
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: "535"},
        ALL_DISABLED,
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: "535"} | PRESENT | C,
    ),
    "16": Case(P | PRESENT | PASSTHROUGH | C | MIG, SANDBOX, P | PRESENT | PASSTHROUGH | VFIO),
    "a 3D controller alone": Case({PCI_LABELS[1]: TRUE}, WISH, {PCI_LABELS[1]: TRUE} | PRESENT | C),
    "a VGA card alone": Case({PCI_LABELS[2]: TRUE}, WISH, {PCI_LABELS[2]: TRUE} | PRESENT | C),
    "operands wanted again": Case(P | PRESENT, WISH, P | PRESENT | C),
    "operands has another value": Case(P | {OPERANDS: ""}, WISH, P | {OPERANDS: ""} | PRESENT | C),
    "the card came back": Case(P | {NodeLabel.PRESENT.value: "false"}, WISH, P | PRESENT | C),
    "no labels at all": Case({}, WISH, {}),
    "no card, never one, but left-overs": Case(C | {"zone": "a"}, WISH, {"zone": "a"}),
    "an empty workload label": Case(P | {WORKLOAD: ""}, SANDBOX, P | {WORKLOAD: ""} | PRESENT | C),
    "empty keys": Case(P | dict.fromkeys(C, ""), WISH, P | PRESENT | C),
    "an empty vGPU version": Case(
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: ""},
        WISH,
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: ""} | PRESENT | C | MIG,
    ),
    "an empty layout is a choice": Case(
        P | CAPABLE | {MIG_CONFIG: ""}, ALL_DISABLED, P | CAPABLE | {MIG_CONFIG: ""} | PRESENT | C | MIG
    ),
    "MIG for a card of another case": Case(
        P | {NodeLabel.PRODUCT.value: "nvidia-h100-pcie"},
        WISH,
        P | {NodeLabel.PRODUCT.value: "nvidia-h100-pcie"} | PRESENT | C | MIG,
    ),
    "MIG manager stays on a container node": Case(P | MIG, WISH, P | PRESENT | C | MIG),
    "a MIG layout also for VMs": Case(
        P | CAPABLE | PASSTHROUGH,
        msgspec.structs.replace(SANDBOX, mig_default="all-disabled"),
        P | CAPABLE | PASSTHROUGH | PRESENT | VFIO | {MIG_CONFIG: "all-disabled"},
    ),
    "no MIG layout without a MIG manager": Case(
        P | CAPABLE, msgspec.structs.replace(ALL_DISABLED, mig_manager=False), P | CAPABLE | PRESENT | C | MIG
    ),
    "the default type": Case(
        P, msgspec.structs.replace(SANDBOX, default_workload=Workload.VM_VGPU), P | PRESENT | VGPU
    ),
    "a nonsense label, and another default": Case(
        P | FOO,
        msgspec.structs.replace(SANDBOX, default_workload=Workload.VM_PASSTHROUGH),
        P | FOO | PRESENT | VFIO,
    ),
    "a default of the future": Case(
        P, msgspec.structs.replace(SANDBOX, default_workload=Workload("vm-of-tomorrow")), P | PRESENT | C
    ),
    "a label of somebody else": Case(
        P | keys("dra-driver") | {"zone": "a"}, WISH, P | keys("dra-driver") | {"zone": "a"} | PRESENT | C
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_gets_exactly_the_labels_of_the_published_cases(case: Case) -> None:
    assert labelled(case.before, case.wish) == case.after


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_that_is_right_needs_nothing(case: Case) -> None:
    before = node(case.before)
    settled = after(before, decide(Subject(before), case.wish))
    assert not decide(Subject(settled), case.wish)


TYPES = {
    "container": (WISH, {}, C),
    "vm-passthrough": (SANDBOX, PASSTHROUGH, VFIO),
    "vm-passthrough, kata": (KATA_MODE, PASSTHROUGH, KATA),
    "vm-vgpu": (SANDBOX, VM_VGPU, VGPU),
}


@pytest.mark.parametrize("now", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("before", TYPES.values(), ids=TYPES)
def test_a_node_changes_from_any_type_to_any_other(
    before: tuple[Wish, dict[str, str], dict[str, str]], now: tuple[Wish, dict[str, str], dict[str, str]]
) -> None:
    wish, choice, wanted = now
    assert labelled(P | PRESENT | before[2] | choice, wish) == P | PRESENT | choice | wanted


@pytest.mark.parametrize("value", [PAUSED, "paused-for-mig-change", "false", "anything"])
@pytest.mark.parametrize("serving", [False, True])
def test_words_of_others_are_kept_in_every_deploy_label(value: str, *, serving: bool) -> None:
    before = P | PRESENT | dict.fromkeys(C | MIG, value)
    report = Report(host_driver=HostDriver("580.1"), driver_known=True, agent_plugin=serving)
    assert labelled(before, WISH, report) == before


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("containerd://2.4.2", "containerd"),
        ("cri-o://1.36.0", "crio"),
        ("docker://28.0", "docker"),
        ("", "containerd"),
    ],
)
def test_a_node_with_a_card_tells_its_runtime(said: str, label: str) -> None:
    before = node(P, runtime=said)
    right = after(before, decide(Subject(before), WISH))
    assert right.metadata.labels[RUNTIME] == label
    assert managed(right)
    gone = node({name: value for name, value in right.metadata.labels.items() if name not in P})
    assert RUNTIME not in after(gone, decide(Subject(gone), WISH)).metadata.labels
    assert not managed(before)


HOST = Report(host_driver=HostDriver("580.159.04"), driver_known=True)
BROKEN = Report(host_driver=HostDriver("440.33", "too old"), driver_known=True)
NO_HOST = Report(driver_known=True)
UNKNOWN = Report()


@pytest.mark.parametrize("report", [HOST, BROKEN], ids=["works", "does not work"])
@pytest.mark.parametrize("value", [None, "", TRUE, PRE_INSTALLED])
def test_a_host_with_a_driver_gets_none_of_ours(report: Report, value: str | None) -> None:
    before = P if value is None else P | keys("driver", value=value)
    assert labelled(before, WISH, report) == P | PRESENT | C | keys("driver", value=PRE_INSTALLED)


@pytest.mark.parametrize(
    ("value", "report", "wanted"),
    [
        (PRE_INSTALLED, NO_HOST, TRUE),
        (PRE_INSTALLED, UNKNOWN, PRE_INSTALLED),
        (TRUE, UNKNOWN, TRUE),
        ("", UNKNOWN, TRUE),
        ("", NO_HOST, TRUE),
        (PAUSED, NO_HOST, PAUSED),
    ],
)
def test_only_a_host_known_to_have_no_driver_gets_ours_back(value: str, report: Report, wanted: str) -> None:
    assert labelled(P | keys("driver", value=value), WISH, report)[f"{DEPLOY}driver"] == wanted


@pytest.mark.parametrize("value", ["", TRUE, PRE_INSTALLED])
def test_a_driver_pod_is_not_taken_for_the_hosts_driver(value: str) -> None:
    before = node(P | keys("driver", value=value))
    subject = Subject(before, HOST, driver_pod=True)
    assert after(before, decide(subject, WISH)).metadata.labels[f"{DEPLOY}driver"] == (value or TRUE)


def test_without_a_driver_container_a_host_driver_is_nothing_special() -> None:
    off = msgspec.structs.replace(WISH, driver_enabled=False)
    assert labelled(P, off, HOST) == P | PRESENT | C


@pytest.mark.parametrize(
    ("labels", "wish", "meant"),
    [
        (keys("driver"), WISH, True),
        ({}, WISH, True),
        (keys("driver", value=""), WISH, True),
        (keys("driver", value=PAUSED), WISH, True),
        (keys("driver", value=PRE_INSTALLED), WISH, False),
        (keys("driver", value="false"), WISH, False),
        (keys("driver") | OFF, WISH, False),
        (keys("driver") | PASSTHROUGH, WISH, True),
        (keys("driver") | PASSTHROUGH, SANDBOX, False),
        (VM_VGPU, SANDBOX, False),
    ],
)
def test_a_driver_container_is_meant_for_nodes_that_bring_none(labels: dict[str, str], wish: Wish, meant: bool) -> None:
    assert gets_driver(P | labels, wish) is meant


SERVES = Report(agent_plugin=True)
OURS = keys("device-plugin", "operator-validator", value=AGENT)


@pytest.mark.parametrize(
    ("before", "report", "wanted"),
    [
        (P, SERVES, C | OURS),
        (P | C, SERVES, C | OURS),
        (P | dict.fromkeys(C, ""), SERVES, C | OURS),
        (P | C | OURS, UNKNOWN, C),
        (P | C | MIG, SERVES, C | OURS | keys("mig-manager", value=AGENT)),
        (P | C | OURS | keys("mig-manager", value=AGENT), UNKNOWN, C | MIG),
        (P | CAPABLE, SERVES, CAPABLE | C | OURS | keys("mig-manager", value=AGENT)),
        (P | C | keys("device-plugin", value=PAUSED), SERVES, C | OURS | keys("device-plugin", value=PAUSED)),
        (P | C | dict.fromkeys(OURS, AGENT_PAUSED), SERVES, C | dict.fromkeys(OURS, AGENT_PAUSED)),
        (P | C | dict.fromkeys(OURS, AGENT_PAUSED), UNKNOWN, C | dict.fromkeys(OURS, AGENT_PAUSED)),
        (
            P | C | OURS | keys("mig-manager", value=AGENT_PAUSED),
            SERVES,
            C | OURS | keys("mig-manager", value=AGENT_PAUSED),
        ),
        (
            P | C | keys("operator-validator", value="false"),
            SERVES,
            C | OURS | keys("operator-validator", value="false"),
        ),
        (P | C | OURS | keys("container-toolkit", value=AGENT), SERVES, C | OURS),
        (P | C | keys("container-toolkit", value=AGENT), UNKNOWN, C),
        (P | OFF | C | OURS, SERVES, OFF),
    ],
    ids=[
        *("new", "from true", "empty", "back", "MIG", "MIG back", "MIG new", "paused", "paused as the agent's"),
        *("paused, and the agent has left", "MIG paused", "a person's word", "the toolkit stays"),
        *("the toolkit comes back", "operands off"),
    ],
)
def test_what_the_agent_does_itself_is_not_done_twice(
    before: dict[str, str], report: Report, wanted: dict[str, str]
) -> None:
    assert labelled(before, WISH, report) == P | PRESENT | wanted


def test_the_agent_has_no_say_on_nodes_for_virtual_machines() -> None:
    assert labelled(P | PASSTHROUGH, SANDBOX, SERVES) == P | PASSTHROUGH | PRESENT | VFIO


class Ownership(NamedTuple):
    labels: dict[str, str]
    annotations: dict[str, str]
    wish: Wish
    owner: OwnerWish | None
    name: str | None
    enabled: str | None


OWNED = {OWNER: "a"}
ON = {ENABLED: TRUE}
OWNERSHIP = {
    "upgrades by the policy": Ownership(P, {}, UPGRADES, None, None, TRUE),
    "another word becomes true": Ownership(P, {ENABLED: "false"}, UPGRADES, None, None, TRUE),
    "no longer upgrades": Ownership(P, ON, WISH, None, None, None),
    "a node without a card": Ownership(OWNED, ON, UPGRADES, None, None, None),
    "a node that lost its card, drivers by CRD": Ownership(
        PRESENT | OWNED, ON, DRIVER_CRD, OwnerWish("a", upgrades=True), None, None
    ),
    "owned": Ownership(P, {}, DRIVER_CRD, OwnerWish("a", upgrades=True), "a", TRUE),
    "owned by another": Ownership(P | OWNED, ON, DRIVER_CRD, OwnerWish("b"), "b", None),
    "owned no longer": Ownership(P | OWNED, ON, DRIVER_CRD, OwnerWish(None, upgrades=True), None, None),
    "nobody can say": Ownership(P | OWNED, ON, DRIVER_CRD, None, "a", TRUE),
    "the policy's word does not count": Ownership(
        P, {}, msgspec.structs.replace(DRIVER_CRD, upgrades=True), OwnerWish("a"), "a", None
    ),
    "the CRD is no longer used": Ownership(P | OWNED, ON, UPGRADES, None, None, TRUE),
    "also with operands off": Ownership(P | OFF, {}, UPGRADES, None, None, TRUE),
}


@pytest.mark.parametrize("row", OWNERSHIP.values(), ids=OWNERSHIP)
def test_owner_and_upgrades_come_from_whoever_is_in_charge_of_the_driver(row: Ownership) -> None:
    before = node(row.labels, row.annotations)
    right = after(before, decide(Subject(before, owner=row.owner), row.wish))
    assert right.metadata.labels.get(OWNER) == row.name
    assert right.metadata.annotations.get(ENABLED) == row.enabled
    assert not decide(Subject(right, owner=row.owner), row.wish)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"mig_default": ""}),
        ({"migManager": {"enabled": False, "config": {}}}, {"mig_manager": False, "mig_default": "all-disabled"}),
        ({"migManager": {"config": {"default": ""}}}, {"mig_default": ""}),
        ({"driver": {"upgradePolicy": {"autoUpgrade": True}}}, {"upgrades": True}),
        ({"driver": {"upgradePolicy": {"autoUpgrade": True}, "enabled": False}}, {"driver_enabled": False}),
        (
            {"driver": {"upgradePolicy": {"autoUpgrade": True}}, "sandboxWorkloads": {"enabled": True}},
            {"sandbox": True},
        ),
        ({"driver": {"useNvidiaDriverCRD": True}}, {"driver_crd": True}),
        (
            {"sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-vgpu", "mode": "kata"}},
            {"sandbox": True, "default_workload": Workload.VM_VGPU, "mode": SandboxMode.KATA},
        ),
    ],
)
def test_a_wish_is_what_the_policy_says(spec: dict[str, object], expected: dict[str, object]) -> None:
    sections = ("operator", "daemonsets", "driver", "toolkit", "devicePlugin", "dcgm", "dcgmExporter")
    whole = {name: {} for name in (*sections, "nodeStatusExporter", "gfd")} | spec
    wish = wish_of(msgspec.convert(whole, ClusterPolicySpec))
    assert wish == msgspec.structs.replace(WISH, **expected)


def test_a_cleanup_leaves_what_people_and_others_have_written() -> None:
    theirs = P | CAPABLE | PASSTHROUGH | OFF | {MIG_CONFIG: "all-1g.10gb", "zone": "a", f"{DEPLOY}dra-driver": TRUE}
    right = node(theirs | PRESENT | C | VGPU | KATA | MIG | OWNED | {RUNTIME: "crio"}, ON | {"note": "mine"})
    clean = after(right, cleanup(right))
    assert clean.metadata.labels == theirs
    assert clean.metadata.annotations == {"note": "mine"}
    assert not cleanup(clean)


NAMES = [*PCI_LABELS, *C, *VFIO, *KATA, *VGPU, *MIG, OPERANDS, WORKLOAD, MIG_CONFIG, OWNER, RUNTIME, "zone"]
NAMES += [NodeLabel.PRESENT.value, NodeLabel.MIG_CAPABLE.value, NodeLabel.PRODUCT.value]
VALUES = st.sampled_from(
    [TRUE, "false", "", PAUSED, AGENT, AGENT_PAUSED, PRE_INSTALLED, "vm-vgpu", "vm-passthrough", "A100", "crio"]
)
NODES = st.builds(
    node,
    st.dictionaries(st.sampled_from(NAMES), VALUES),
    st.dictionaries(st.sampled_from([ENABLED, "note"]), VALUES),
    st.sampled_from(["containerd://2", "cri-o://1", ""]),
)
SUBJECTS = st.builds(
    Subject,
    NODES,
    st.builds(Report, st.sampled_from([None, HostDriver("580.1")]), st.booleans(), st.booleans()),
    st.booleans(),
    st.one_of(st.none(), st.builds(OwnerWish, st.sampled_from([None, "a"]), st.booleans())),
)
WISHES = st.builds(
    Wish,
    st.booleans(),
    st.sampled_from(list(Workload)),
    st.sampled_from(list(SandboxMode)),
    st.booleans(),
    st.sampled_from(["", "all-disabled"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@given(SUBJECTS, WISHES)
def test_one_change_settles_any_node_and_says_only_what_differs(subject: Subject, wish: Wish) -> None:
    change = decide(subject, wish)
    labels, annotations = subject.node.metadata.labels, subject.node.metadata.annotations
    assert all(labels.get(name) != value for name, value in change.labels.items())
    assert all(annotations.get(name) != value for name, value in change.annotations.items())
    assert bool(change.reason) == bool(change)
    assert not decide(msgspec.structs.replace(subject, node=after(subject.node, change)), wish)


@given(SUBJECTS, WISHES)
def test_nothing_of_people_and_others_is_touched(subject: Subject, wish: Wish) -> None:
    theirs = {*PCI_LABELS, OPERANDS, WORKLOAD, "zone", NodeLabel.MIG_CAPABLE.value, NodeLabel.PRODUCT.value}
    change = decide(subject, wish)
    assert not change.labels.keys() & theirs
    assert change.annotations.keys() <= {ENABLED}
    assert MIG_CONFIG not in change.labels.keys() & subject.node.metadata.labels.keys()


@given(SUBJECTS, WISHES)
def test_a_managed_node_is_told_apart_and_a_cleanup_takes_all_of_it(subject: Subject, wish: Wish) -> None:
    right = after(subject.node, decide(subject, wish))
    assert managed(right) == any(right.metadata.labels.get(name) == TRUE for name in PCI_LABELS)
    clean = after(right, cleanup(right))
    assert not managed(clean)
    assert not cleanup(clean)
    assert after(clean, decide(Subject(clean), wish)).metadata.labels.get(NodeLabel.PRESENT.value) != "false"


@given(SUBJECTS, WISHES)
def test_where_a_driver_container_is_meant_its_label_follows(subject: Subject, wish: Wish) -> None:
    before = node(subject.node.metadata.labels | P)
    labels = after(before, decide(msgspec.structs.replace(subject, node=before), wish)).metadata.labels
    assert gets_driver(labels, wish) == (labels.get(f"{DEPLOY}driver") in (TRUE, PAUSED))
