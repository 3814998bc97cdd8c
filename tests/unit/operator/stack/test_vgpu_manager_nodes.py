"""Which nodes a vGPU manager is made for, and that none takes the place of one that runs under virtual machines."""

import itertools

from gpu_control_plane.api.nvidia.names import NodeLabel, PodLabel
from gpu_control_plane.operator.drivers.render import HOST_MANAGER
from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.operands.vgpu_manager import STATE
from gpu_control_plane.operator.stack.render import render_state
from unit.operator.stack.sandbox_builders import RHEL, UBUNTU, VGPU_IMAGE, daemonset, daemonsets, policy, render_input

NAME = "nvidia-vgpu-manager-daemonset"
POLICY = policy(vgpuManager=VGPU_IMAGE)
JAMMY = NodeKind(system=OperatingSystem("ubuntu", "22.04"))
FOR_CONTAINERS = NodeKind(system=UBUNTU.system, vgpu=False)


def test_nodes_for_containers_bring_no_daemonset_and_take_no_name() -> None:
    made = daemonset(STATE, render_input(POLICY, FOR_CONTAINERS, RHEL))
    assert made.name == NAME
    assert made.pod["nodeSelector"][NodeLabel.OS_ID] == "rhel"


def test_without_a_node_for_vgpus_there_is_no_daemonset_and_nothing_wrong() -> None:
    assert daemonsets(STATE, render_input(POLICY, FOR_CONTAINERS, NodeKind(vgpu=False))) == []


def test_while_the_systems_of_its_nodes_are_unknown_what_runs_is_kept() -> None:
    rendered = render_state(STATE, render_input(POLICY, FOR_CONTAINERS, NodeKind()))
    assert str(NodeLabel.OS_ID) in rendered.problem
    assert not rendered.manifests


def test_a_release_counts_only_where_vgpus_are() -> None:
    kinds = [
        NodeKind(system=OperatingSystem("rhcos", "4.20"), ostree=release, vgpu=release == "1") for release in ("1", "2")
    ]
    openshift = OpenShift(version="4.20", toolkit_images={"1": "registry.example/dtk:1"})
    spec = policy(vgpuManager=VGPU_IMAGE, operator={"use_ocp_driver_toolkit": True})
    assert daemonset(STATE, render_input(spec, *kinds, openshift=openshift)).name == f"{NAME}-1"


def test_no_daemonset_finds_the_pods_of_another() -> None:
    made = daemonsets(STATE, render_input(POLICY, UBUNTU, JAMMY, RHEL))
    assert len(made) == 3
    for one, other in itertools.permutations(made, 2):
        wanted = one.manifest["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= one.template["metadata"]["labels"].items()
        assert not wanted.items() <= other.template["metadata"]["labels"].items()


def test_a_successor_waits_until_the_one_that_runs_has_gone() -> None:
    """Be it of another DaemonSet of the policy, or of an NVIDIADriver that takes over."""
    made = daemonset(STATE, render_input(POLICY))
    (term,) = made.pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (rule,) = term["labelSelector"]["matchExpressions"]
    assert (rule["key"], rule["values"], term["topologyKey"]) == (
        str(PodLabel.COMPONENT),
        [HOST_MANAGER],
        "kubernetes.io/hostname",
    )
    assert made.template["metadata"]["labels"][PodLabel.COMPONENT] == HOST_MANAGER
