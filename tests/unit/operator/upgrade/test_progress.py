"""What is reported of an upgrade: numbers, times, failures and metrics."""

from datetime import UTC, datetime

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.status import MAX_NODES_NAMED, NodeTrouble
from gpu_control_plane.operator.upgrade.metrics import Count, UpgradeMetrics
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.progress import report
from unit.operator.upgrade.nodes import CURRENT, NOW, POLICY, STALE, view

S = UpgradeState


def done(name: str, seconds: int | None = None) -> NodeView:
    times: dict[str, str] = {
        NodeAnnotation.STARTED: str(int(NOW) - 5000),
        NodeAnnotation.STEP_SINCE: str(int(NOW) - 5000 + (seconds or 0)),
    }
    return view(S.DONE, CURRENT, name=name, annotations=times if seconds is not None else {})


def busy(name: str, seconds: int) -> NodeView:
    return view(S.POD_RESTART_REQUIRED, STALE, name=name, annotations={NodeAnnotation.STARTED: str(int(NOW) - seconds)})


VIEWS = [
    done("a", 100),
    done("b", 300),
    done("c"),
    busy("d", 60),
    view(S.REQUIRED, STALE, name="e"),
    view(S.REQUIRED, STALE, name="f"),
    view(S.REQUIRED, STALE, name="g", labels={NodeLabel.UPGRADE_SKIP: "true"}),
    view(S.FAILED, STALE, name="h", annotations={NodeAnnotation.FAILURE: "the pod did not leave"}),
]


def test_the_nodes_are_counted_by_what_they_are_at() -> None:
    found = report(POLICY, VIEWS, "something", NOW)
    assert (found.total, found.done, found.in_progress, found.pending) == (8, 3, 1, 2)
    assert (found.failed, found.skipped, found.message) == (1, 1, "something")
    assert found.failed_nodes == (NodeTrouble(node="h", reason="UpgradeFailed", message="the pod did not leave"),)


def test_a_node_without_a_driver_of_ours_is_not_counted() -> None:
    assert report(POLICY, [*VIEWS, view(S.NONE, name="host")], "", NOW) == report(POLICY, VIEWS, "", NOW)


def test_the_average_is_that_of_nodes_which_were_upgraded() -> None:
    found = report(POLICY, VIEWS, "", NOW)
    assert (found.average_seconds, found.measured) == (200, 2)


def test_the_end_is_expected_after_those_under_way_and_those_that_wait() -> None:
    """One lane: 140 s are left of the node under way, then two more of 200 s, in whole minutes."""
    found = report(POLICY, VIEWS, "", NOW)
    assert found.expected_end == datetime.fromtimestamp(-(-(NOW + 540) // 60) * 60, UTC)
    two_lanes = report(replace(POLICY, max_parallel_upgrades=2), VIEWS, "", NOW)
    assert two_lanes.expected_end is not None
    assert two_lanes.expected_end < found.expected_end


def test_no_end_is_expected_of_what_stands_still_or_is_over() -> None:
    assert report(replace(POLICY, paused=True), VIEWS, "", NOW).expected_end is None
    assert report(POLICY, [done("a", 100)], "", NOW).expected_end is None
    assert report(POLICY, [view(S.REQUIRED, STALE)], "", NOW).expected_end is None


def test_a_report_stays_small_and_the_same_while_nothing_happens() -> None:
    failed = [view(S.FAILED, STALE, name=f"n{number:03}") for number in range(50)]
    found = report(POLICY, failed, "x" * 5000, NOW)
    assert len(found.failed_nodes) == MAX_NODES_NAMED
    assert len(found.message) == 1024
    assert report(POLICY, VIEWS, "", NOW + 1) == report(POLICY, VIEWS, "", NOW)


def test_metrics_have_nvidias_names_and_ours_by_driver() -> None:
    registry = CollectorRegistry()
    metrics = UpgradeMetrics(registry)
    metrics.show({"": Count(VIEWS, 2), "a100": Count([done("z")], 1)})
    text = generate_latest(registry).decode()
    for line in (
        "gpu_operator_driver_auto_upgrade_enabled 1.0",
        "gpu_operator_nodes_upgrades_in_progress 1.0",
        "gpu_operator_nodes_upgrades_done 4.0",
        "gpu_operator_nodes_upgrades_failed 1.0",
        "gpu_operator_nodes_upgrades_available 3.0",
        "gpu_operator_nodes_upgrades_pending 3.0",
        'gpu_operator_upgrade_nodes{driver="cluster-policy",state="upgrade-failed"} 1.0',
        'gpu_operator_upgrade_nodes{driver="a100",state="upgrade-done"} 1.0',
    ):
        assert line in text
    metrics.show({})
    assert "a100" not in generate_latest(registry).decode()
