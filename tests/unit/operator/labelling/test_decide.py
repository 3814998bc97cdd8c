"""Which labels a node gets: the published cases of NVIDIA's operator, what lies between them, and what is ours."""

from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia.choices import SandboxMode, Workload
from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import AGENT, DEPLOY, PCI_LABELS, PRE_INSTALLED, TRUE, NodeLabel
from gpu_control_plane.operator.labelling.decide import (
    AgentReport,
    DriverOwner,
    HostDriver,
    LabelSpec,
    NodeInput,
    decide,
    gets_driver,
    label_spec_of,
    labelled_by_us,
    removal_patch,
)
from unit.operator.labelling.builders import (
    A100,
    AGENT_PAUSED,
    ALL_DISABLED,
    CAPABLE,
    DRIVER_CRD,
    ENABLED,
    KATA,
    KATA_MODE,
    MIG,
    MIG_CONFIG,
    OFF,
    OPERANDS,
    OWNER,
    PASSTHROUGH,
    PAUSED,
    PRESENT,
    RUNTIME,
    SANDBOX,
    SPEC,
    UPGRADES,
    VFIO,
    VGPU,
    VM_VGPU,
    WORKLOAD,
    C,
    P,
    after,
    keys,
    labelled,
    node,
)


class Case(NamedTuple):
    before: dict[str, str]
    spec: LabelSpec
    after: dict[str, str]


FOO = {WORKLOAD: "foo"}
CASES = {
    "1": Case(P, SPEC, P | PRESENT | C),
    "2": Case({PCI_LABELS[0]: "false"}, SPEC, {PCI_LABELS[0]: "false"}),
    "3": Case(
        PRESENT | keys("driver", "mig-manager") | {MIG_CONFIG: "all-1g.10gb"},
        SPEC,
        {NodeLabel.PRESENT.value: "false", MIG_CONFIG: "all-1g.10gb"},
    ),
    "4": Case(P | PASSTHROUGH, SPEC, P | PASSTHROUGH | PRESENT | C),
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
        SPEC,
        P | PRESENT | C | keys("driver", value=PAUSED) | keys("dcgm", value="false"),
    ),
    "11": Case(P | CAPABLE, ALL_DISABLED, P | CAPABLE | PRESENT | C | MIG | {MIG_CONFIG: "all-disabled"}),
    "12": Case(
        P | CAPABLE | {MIG_CONFIG: "all-1g.10gb"},
        ALL_DISABLED,
        P | CAPABLE | PRESENT | C | MIG | {MIG_CONFIG: "all-1g.10gb"},
    ),
    "13": Case(P | A100, SPEC, P | A100 | PRESENT | C | MIG),
    "14": Case(
        P | A100 | {NodeLabel.MIG_CAPABLE.value: "false"},
        SPEC,
        P | A100 | {NodeLabel.MIG_CAPABLE.value: "false"} | PRESENT | C,
    ),
    "15": Case(
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: "535"},
        ALL_DISABLED,
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: "535"} | PRESENT | C,
    ),
    "16": Case(P | PRESENT | PASSTHROUGH | C | MIG, SANDBOX, P | PRESENT | PASSTHROUGH | VFIO),
    "a 3D controller alone": Case({PCI_LABELS[1]: TRUE}, SPEC, {PCI_LABELS[1]: TRUE} | PRESENT | C),
    "a VGA card alone": Case({PCI_LABELS[2]: TRUE}, SPEC, {PCI_LABELS[2]: TRUE} | PRESENT | C),
    "operands wanted again": Case(P | PRESENT, SPEC, P | PRESENT | C),
    "operands has another value": Case(P | {OPERANDS: ""}, SPEC, P | {OPERANDS: ""} | PRESENT | C),
    "the card came back": Case(P | {NodeLabel.PRESENT.value: "false"}, SPEC, P | PRESENT | C),
    "no labels at all": Case({}, SPEC, {}),
    "no card, never one, but left-overs": Case(C | {"zone": "a"}, SPEC, {"zone": "a"}),
    "an empty workload label": Case(P | {WORKLOAD: ""}, SANDBOX, P | {WORKLOAD: ""} | PRESENT | C),
    "empty keys": Case(P | dict.fromkeys(C, ""), SPEC, P | PRESENT | C),
    "an empty vGPU version": Case(
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: ""},
        SPEC,
        P | CAPABLE | {NodeLabel.VGPU_HOST_DRIVER.value: ""} | PRESENT | C | MIG,
    ),
    "an empty layout is a choice": Case(
        P | CAPABLE | {MIG_CONFIG: ""}, ALL_DISABLED, P | CAPABLE | {MIG_CONFIG: ""} | PRESENT | C | MIG
    ),
    "MIG for a card of another case": Case(
        P | {NodeLabel.PRODUCT.value: "nvidia-h100-pcie"},
        SPEC,
        P | {NodeLabel.PRODUCT.value: "nvidia-h100-pcie"} | PRESENT | C | MIG,
    ),
    "MIG manager stays on a container node": Case(P | MIG, SPEC, P | PRESENT | C | MIG),
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
    "labels of other writers": Case(
        P | keys("dra-driver") | {"zone": "a"}, SPEC, P | keys("dra-driver") | {"zone": "a"} | PRESENT | C
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_gets_exactly_the_labels_of_the_published_cases(case: Case) -> None:
    assert labelled(case.before, case.spec) == case.after


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_node_with_the_right_labels_needs_no_patch(case: Case) -> None:
    before = node(case.before)
    settled = after(before, decide(NodeInput(before), case.spec))
    assert not decide(NodeInput(settled), case.spec)


TYPES = {
    "container": (SPEC, {}, C),
    "vm-passthrough": (SANDBOX, PASSTHROUGH, VFIO),
    "vm-passthrough, kata": (KATA_MODE, PASSTHROUGH, KATA),
    "vm-vgpu": (SANDBOX, VM_VGPU, VGPU),
}


@pytest.mark.parametrize("now", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("before", TYPES.values(), ids=TYPES)
def test_a_node_changes_from_any_type_to_any_other(
    before: tuple[LabelSpec, dict[str, str], dict[str, str]], now: tuple[LabelSpec, dict[str, str], dict[str, str]]
) -> None:
    spec, choice, wanted = now
    assert labelled(P | PRESENT | before[2] | choice, spec) == P | PRESENT | choice | wanted


@pytest.mark.parametrize("value", [PAUSED, "paused-for-mig-change", "false", "anything"])
@pytest.mark.parametrize("serving", [False, True])
def test_values_of_other_writers_are_kept_in_every_deploy_label(value: str, *, serving: bool) -> None:
    before = P | PRESENT | dict.fromkeys(C | MIG, value)
    report = AgentReport(host_driver=HostDriver("580.1"), driver_known=True, agent_plugin=serving)
    assert labelled(before, SPEC, report) == before


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("containerd://2.4.2", "containerd"),
        ("cri-o://1.36.0", "crio"),
        ("docker://28.0", "docker"),
        ("", "containerd"),
    ],
)
def test_a_node_with_a_card_is_labelled_with_its_runtime(said: str, label: str) -> None:
    before = node(P, runtime=said)
    right = after(before, decide(NodeInput(before), SPEC))
    assert right.metadata.labels[RUNTIME] == label
    assert labelled_by_us(right)
    gone = node({name: value for name, value in right.metadata.labels.items() if name not in P})
    assert RUNTIME not in after(gone, decide(NodeInput(gone), SPEC)).metadata.labels
    assert not labelled_by_us(before)


class Ownership(NamedTuple):
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: LabelSpec
    owner: DriverOwner | None
    name: str | None
    enabled: str | None


OWNED = {OWNER: "a"}
ON = {ENABLED: TRUE}
OWNERSHIP = {
    "upgrades by the policy": Ownership(P, {}, UPGRADES, None, None, TRUE),
    "another word becomes true": Ownership(P, {ENABLED: "false"}, UPGRADES, None, None, TRUE),
    "no longer upgrades": Ownership(P, ON, SPEC, None, None, None),
    "a node without a card": Ownership(OWNED, ON, UPGRADES, None, None, None),
    "a node that lost its card, drivers by CRD": Ownership(
        PRESENT | OWNED, ON, DRIVER_CRD, DriverOwner("a", upgrades=True), None, None
    ),
    "owned": Ownership(P, {}, DRIVER_CRD, DriverOwner("a", upgrades=True), "a", TRUE),
    "owned by another": Ownership(P | OWNED, ON, DRIVER_CRD, DriverOwner("b"), "b", None),
    "owned no longer": Ownership(P | OWNED, ON, DRIVER_CRD, DriverOwner(None, upgrades=True), None, None),
    "the owner is not known": Ownership(P | OWNED, ON, DRIVER_CRD, None, "a", TRUE),
    "the policy's word does not count": Ownership(
        P, {}, msgspec.structs.replace(DRIVER_CRD, upgrades=True), DriverOwner("a"), "a", None
    ),
    "the CRD is no longer used": Ownership(P | OWNED, ON, UPGRADES, None, None, TRUE),
    "also with operands off": Ownership(P | OFF, {}, UPGRADES, None, None, TRUE),
}


@pytest.mark.parametrize("row", OWNERSHIP.values(), ids=OWNERSHIP)
def test_owner_and_upgrades_come_from_the_policy_or_the_nvidiadriver(row: Ownership) -> None:
    before = node(row.labels, row.annotations)
    right = after(before, decide(NodeInput(before, owner=row.owner), row.spec))
    assert right.metadata.labels.get(OWNER) == row.name
    assert right.metadata.annotations.get(ENABLED) == row.enabled
    assert not decide(NodeInput(right, owner=row.owner), row.spec)


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
def test_a_label_spec_is_what_the_policy_says(spec: dict[str, object], expected: dict[str, object]) -> None:
    sections = ("operator", "daemonsets", "driver", "toolkit", "devicePlugin", "dcgm", "dcgmExporter")
    whole = {name: {} for name in (*sections, "nodeStatusExporter", "gfd")} | spec
    assert label_spec_of(msgspec.convert(whole, ClusterPolicySpec)) == msgspec.structs.replace(SPEC, **expected)


def test_a_removal_patch_leaves_labels_of_people_and_other_programs() -> None:
    theirs = P | CAPABLE | PASSTHROUGH | OFF | {MIG_CONFIG: "all-1g.10gb", "zone": "a", f"{DEPLOY}dra-driver": TRUE}
    right = node(theirs | PRESENT | C | VGPU | KATA | MIG | OWNED | {RUNTIME: "crio"}, ON | {"note": "mine"})
    clean = after(right, removal_patch(right))
    assert clean.metadata.labels == theirs
    assert clean.metadata.annotations == {"note": "mine"}
    assert not removal_patch(clean)


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
    NodeInput,
    NODES,
    st.builds(AgentReport, st.sampled_from([None, HostDriver("580.1")]), st.booleans(), st.booleans()),
    st.booleans(),
    st.one_of(st.none(), st.builds(DriverOwner, st.sampled_from([None, "a"]), st.booleans())),
)
WISHES = st.builds(
    LabelSpec,
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
def test_one_patch_settles_any_node_and_has_only_what_differs(subject: NodeInput, spec: LabelSpec) -> None:
    change = decide(subject, spec)
    labels, annotations = subject.node.metadata.labels, subject.node.metadata.annotations
    assert all(labels.get(name) != value for name, value in change.labels.items())
    assert all(annotations.get(name) != value for name, value in change.annotations.items())
    assert bool(change.reason) == bool(change)
    assert not decide(msgspec.structs.replace(subject, node=after(subject.node, change)), spec)


@given(SUBJECTS, WISHES)
def test_labels_of_people_and_other_programs_stay(subject: NodeInput, spec: LabelSpec) -> None:
    theirs = {*PCI_LABELS, OPERANDS, WORKLOAD, "zone", NodeLabel.MIG_CAPABLE.value, NodeLabel.PRODUCT.value}
    change = decide(subject, spec)
    assert not change.labels.keys() & theirs
    assert change.annotations.keys() <= {ENABLED}
    assert MIG_CONFIG not in change.labels.keys() & subject.node.metadata.labels.keys()


@given(SUBJECTS, WISHES)
def test_a_labelled_node_is_recognised_and_its_removal_patch_is_complete(subject: NodeInput, spec: LabelSpec) -> None:
    right = after(subject.node, decide(subject, spec))
    assert labelled_by_us(right) == any(right.metadata.labels.get(name) == TRUE for name in PCI_LABELS)
    clean = after(right, removal_patch(right))
    assert not labelled_by_us(clean)
    assert not removal_patch(clean)
    assert after(clean, decide(NodeInput(clean), spec)).metadata.labels.get(NodeLabel.PRESENT.value) != "false"


@given(SUBJECTS, WISHES)
def test_a_node_that_gets_a_driver_has_the_deploy_label(subject: NodeInput, spec: LabelSpec) -> None:
    before = node(subject.node.metadata.labels | P)
    labels = after(before, decide(msgspec.structs.replace(subject, node=before), spec)).metadata.labels
    assert gets_driver(labels, spec) == (labels.get(f"{DEPLOY}driver") in (TRUE, PAUSED))
