"""Which objects of a policy are deleted when it does not ask for them any more."""

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicy
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.kube.objects import ObjectMeta, controlled_by
from gpu_control_plane.operator.stack.live import Live, LiveDaemonSet, LiveServiceAccount
from gpu_control_plane.operator.stack.prune import PruneInput, orphans_pods, should_delete, state_of

STATE = "state-driver"
ASKED = PruneInput(policy="ours", enabled=frozenset({STATE}))
OFF = PruneInput(policy="ours", enabled=frozenset())


def made(kind: type[Live], owner: str = "ours", state: str = STATE, name: str = "x") -> Live:
    return kind(
        metadata=ObjectMeta(
            name=name,
            labels={PodLabel.OPERAND: state} if state else {},
            owner_references=(controlled_by(ClusterPolicy.resource, "policy", owner),),
        )
    )


def driver(strategy: str) -> Live:
    return replace(made(LiveDaemonSet), spec={"updateStrategy": {"type": strategy}})


@pytest.mark.parametrize(
    ("live", "wanted", "deleted"),
    [
        pytest.param(made(LiveServiceAccount), OFF, True, id="its state is off"),
        pytest.param(made(LiveDaemonSet), OFF, True, id="its state is off, pods and all"),
        pytest.param(made(LiveServiceAccount), ASKED, True, id="its state no longer has it"),
        pytest.param(made(LiveServiceAccount, owner="another"), OFF, False, id="another owner's"),
        pytest.param(made(LiveDaemonSet, state=""), OFF, True, id="made by NVIDIA's operator for this policy"),
        pytest.param(made(LiveDaemonSet), ASKED, False, id="a DaemonSet that still serves nodes"),
        pytest.param(
            made(LiveDaemonSet),
            replace(ASKED, unneeded=lambda _name, _state: True),
            True,
            id="a DaemonSet that is not needed",
        ),
        pytest.param(
            made(LiveDaemonSet),
            replace(ASKED, unneeded=lambda _name, _state: True, cards=False),
            False,
            id="a DaemonSet that is not needed, while no node has a card",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(ASKED, unrendered=frozenset({STATE})),
            False,
            id="it cannot be rendered now",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(OFF, orphaned=frozenset({STATE}), policy_drivers=True),
            False,
            id="NVIDIADrivers take over, and pods still need the account",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(OFF, orphaned=frozenset({STATE})),
            True,
            id="NVIDIADrivers have taken over, no pod is left",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(ASKED, old_pods=frozenset({STATE})),
            False,
            id="pods of an older template still use it",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(ASKED, old_pods=frozenset({"state-vgpu-manager"})),
            True,
            id="only pods of another state are old",
        ),
        pytest.param(
            made(LiveDaemonSet),
            replace(OFF, orphaned=frozenset({STATE}), policy_drivers=True),
            True,
            id="NVIDIADrivers take over: the DaemonSet itself is deleted",
        ),
        pytest.param(
            made(LiveDaemonSet, state="", name="nvidia-driver-daemonset"),
            replace(ASKED, unrendered=frozenset({STATE})),
            False,
            id="NVIDIA's operator's driver, while ours cannot be rendered",
        ),
        pytest.param(
            made(LiveServiceAccount, state="", name="nvidia-driver"),
            replace(OFF, orphaned=frozenset({STATE}), policy_drivers=True),
            False,
            id="the account that NVIDIA's operator made, which pods still need",
        ),
    ],
)
def test_which_objects_are_deleted(live: Live, wanted: PruneInput, deleted: bool) -> None:
    assert should_delete(live, wanted) is deleted


@pytest.mark.parametrize(
    ("live", "wanted", "orphaned"),
    [
        pytest.param(driver("OnDelete"), ASKED, True, id="a driver that has a successor"),
        pytest.param(driver("OnDelete"), OFF, False, id="a driver without a successor"),
        pytest.param(driver("RollingUpdate"), ASKED, False, id="an operand that may be replaced at any time"),
        pytest.param(driver("OnDelete"), replace(OFF, orphaned=frozenset({STATE})), True, id="NVIDIADrivers take over"),
        pytest.param(
            made(LiveDaemonSet, state="", name="nvidia-driver-daemonset"),
            replace(OFF, orphaned=frozenset({STATE})),
            True,
            id="made by NVIDIA's operator, and NVIDIADrivers take over",
        ),
    ],
)
def test_pods_of_a_driver_with_a_successor_run_on_until_the_upgrade(
    live: Live, wanted: PruneInput, orphaned: bool
) -> None:
    assert orphans_pods(live, wanted) is orphaned


@pytest.mark.parametrize(
    ("live", "state"),
    [
        (made(LiveDaemonSet, state="state-dcgm", name="nvidia-driver-daemonset"), "state-dcgm"),
        (made(LiveDaemonSet, state="", name="nvidia-driver-daemonset"), "state-driver"),
        (made(LiveDaemonSet, state="", name="nvidia-driver-daemonset-6.8.0-60-generic-ubuntu24.04"), "state-driver"),
        (made(LiveDaemonSet, state="", name="nvidia-dcgm"), "state-dcgm"),
        (made(LiveDaemonSet, state="", name="nvidia-dcgm-exporter"), "state-dcgm-exporter"),
        (made(LiveServiceAccount, state="", name="nvidia-driver"), "state-driver"),
        (made(LiveServiceAccount, state="", name="nvidia-driver-of-mine"), ""),
        (made(LiveDaemonSet, state="", name="x"), ""),
    ],
)
def test_objects_of_nvidias_operator_are_recognised_by_name(live: Live, state: str) -> None:
    assert state_of(live) == state
