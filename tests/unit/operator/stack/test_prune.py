"""What of a policy's objects goes when it is no longer asked for."""

import pytest
from msgspec.structs import replace

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicy
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.kube.objects import ObjectMeta, controlled_by
from gpu_control_plane.operator.stack.live import Live, LiveDaemonSet, LiveServiceAccount
from gpu_control_plane.operator.stack.prune import Asked, goes, leaves_pods, state_of

STATE = "state-driver"
ASKED = Asked(policy="ours", enabled=frozenset({STATE}))
OFF = Asked(policy="ours", enabled=frozenset())


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
    ("live", "wanted", "gone"),
    [
        pytest.param(made(LiveServiceAccount), OFF, True, id="its state is off"),
        pytest.param(made(LiveDaemonSet), OFF, True, id="its state is off, pods and all"),
        pytest.param(made(LiveServiceAccount), ASKED, True, id="its state no longer has it"),
        pytest.param(made(LiveServiceAccount, owner="another"), OFF, False, id="somebody else's"),
        pytest.param(made(LiveDaemonSet, state=""), OFF, True, id="made by another operator for this policy"),
        pytest.param(made(LiveDaemonSet), ASKED, False, id="a DaemonSet that still serves nodes"),
        pytest.param(
            made(LiveDaemonSet), replace(ASKED, needless=lambda _name, _state: True), True, id="a needless DaemonSet"
        ),
        pytest.param(
            made(LiveDaemonSet),
            replace(ASKED, needless=lambda _name, _state: True, cards=False),
            False,
            id="a needless DaemonSet while no node has a card",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(ASKED, unrendered=frozenset({STATE})),
            False,
            id="it cannot be rendered now",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(OFF, handed_over=frozenset({STATE}), policy_drivers=True),
            False,
            id="handed over, and pods still need their account",
        ),
        pytest.param(
            made(LiveServiceAccount),
            replace(OFF, handed_over=frozenset({STATE})),
            True,
            id="handed over, no pod is left",
        ),
        pytest.param(
            made(LiveDaemonSet),
            replace(OFF, handed_over=frozenset({STATE}), policy_drivers=True),
            True,
            id="handed over: the DaemonSet itself goes",
        ),
        pytest.param(
            made(LiveDaemonSet, state="", name="nvidia-driver-daemonset"),
            replace(ASKED, unrendered=frozenset({STATE})),
            False,
            id="another operator's driver, while ours cannot be rendered",
        ),
        pytest.param(
            made(LiveServiceAccount, state="", name="nvidia-driver"),
            replace(OFF, handed_over=frozenset({STATE}), policy_drivers=True),
            False,
            id="another operator's account, handed over, and pods still need it",
        ),
    ],
)
def test_what_goes(live: Live, wanted: Asked, gone: bool) -> None:
    assert goes(live, wanted) is gone


@pytest.mark.parametrize(
    ("live", "wanted", "stay"),
    [
        pytest.param(driver("OnDelete"), ASKED, True, id="a driver whose successor is asked for"),
        pytest.param(driver("OnDelete"), OFF, False, id="a driver that nobody asks for any more"),
        pytest.param(driver("RollingUpdate"), ASKED, False, id="an operand that may be replaced at any time"),
        pytest.param(driver("OnDelete"), replace(OFF, handed_over=frozenset({STATE})), True, id="handed over"),
        pytest.param(
            made(LiveDaemonSet, state="", name="nvidia-driver-daemonset"),
            replace(OFF, handed_over=frozenset({STATE})),
            True,
            id="another operator's, handed over",
        ),
    ],
)
def test_a_driver_under_work_is_replaced_by_its_nodes_upgrade_and_not_at_once(
    live: Live, wanted: Asked, stay: bool
) -> None:
    assert leaves_pods(live, wanted) is stay


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
def test_what_another_operator_made_is_known_by_its_name(live: Live, state: str) -> None:
    assert state_of(live) == state
