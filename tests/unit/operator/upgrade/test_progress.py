"""What is reported of upgrades: numbers, times, failures and metrics; a restart changes no report."""

from datetime import UTC, datetime

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from gpu_control_plane.api.nvidia.names import NodeAnnotation, NodeLabel, UpgradeState
from gpu_control_plane.api.nvidia.status import MAX_NODES_NAMED, NodeTrouble, UpgradeReport
from gpu_control_plane.kube.signal import Fired
from gpu_control_plane.operator.upgrade.metrics import GroupCount, UpgradeMetrics
from gpu_control_plane.operator.upgrade.node_view import NodeView
from gpu_control_plane.operator.upgrade.progress import ProgressReports, progress_report
from unit.operator.upgrade.builders import CURRENT, NOW, POLICY, STALE, view

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


def test_nodes_are_counted_by_state() -> None:
    found = progress_report(POLICY, VIEWS, "something", NOW)
    assert (found.total, found.done, found.in_progress, found.pending) == (8, 3, 1, 2)
    assert (found.failed, found.skipped, found.message) == (1, 1, "something")
    assert found.failed_nodes == (NodeTrouble(node="h", reason="UpgradeFailed", message="the pod did not leave"),)


def test_a_node_without_a_driver_of_ours_is_not_counted() -> None:
    assert progress_report(POLICY, [*VIEWS, view(S.NONE, name="host")], "", NOW) == progress_report(
        POLICY, VIEWS, "", NOW
    )


def test_the_average_is_that_of_nodes_which_were_upgraded() -> None:
    found = progress_report(POLICY, VIEWS, "", NOW)
    assert (found.average_seconds, found.measured) == (200, 2)


def test_the_expected_end_covers_nodes_in_progress_and_nodes_that_wait() -> None:
    """One lane: 140 s are left of the node in progress, then two more of 200 s, in whole minutes."""
    found = progress_report(POLICY, VIEWS, "", NOW)
    assert found.expected_end == datetime.fromtimestamp(-(-(NOW + 540) // 60) * 60, UTC)
    two_lanes = progress_report(replace(POLICY, max_parallel_upgrades=2), VIEWS, "", NOW)
    assert two_lanes.expected_end is not None
    assert two_lanes.expected_end < found.expected_end


def test_there_is_no_expected_end_while_paused_or_when_all_is_done() -> None:
    assert progress_report(replace(POLICY, paused=True), VIEWS, "", NOW).expected_end is None
    assert progress_report(POLICY, [done("a", 100)], "", NOW).expected_end is None
    assert progress_report(POLICY, [view(S.REQUIRED, STALE)], "", NOW).expected_end is None


def test_a_report_stays_small_and_the_same_while_nothing_happens() -> None:
    failed = [view(S.FAILED, STALE, name=f"n{number:03}") for number in range(50)]
    found = progress_report(POLICY, failed, "x" * 5000, NOW)
    assert len(found.failed_nodes) == MAX_NODES_NAMED
    assert len(found.message) == 1024
    assert progress_report(POLICY, VIEWS, "", NOW + 1) == progress_report(POLICY, VIEWS, "", NOW)


def test_metrics_have_nvidias_names_and_ours_by_driver() -> None:
    registry = CollectorRegistry()
    metrics = UpgradeMetrics(registry)
    metrics.show({"": GroupCount(VIEWS, 2), "a100": GroupCount([done("z")], 1)})
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


ONE, TWO, LAST = UpgradeReport(total=1), UpgradeReport(total=2), UpgradeReport(total=9)


class CountedReports:
    """Reports, and how often they have fired their signal."""

    def __init__(self) -> None:
        self.times = 0
        self.reports = ProgressReports()
        self.reports.changed.on_change(self._count)

    def _count(self, _old: Fired | None, _new: Fired | None) -> None:
        self.times += 1

    def since(self) -> int:
        """How often since the last time this was asked."""
        times, self.times = self.times, 0
        return times


def test_until_all_groups_were_looked_at_the_last_report_counts() -> None:
    counted = CountedReports()
    assert counted.reports.get("a", LAST) == LAST
    counted.reports.put("a", ONE)
    assert (counted.reports.get("a", LAST), counted.reports.get("b", LAST)) == (ONE, LAST)
    counted.since()
    counted.reports.complete({"a"}, set())
    assert counted.since() == 1
    assert (counted.reports.get("a", LAST), counted.reports.get("b", LAST)) == (ONE, None)


def test_only_changes_are_signalled() -> None:
    counted = CountedReports()
    counted.reports.put("a", ONE)
    counted.reports.complete({"a"}, set())
    counted.since()
    counted.reports.put("a", ONE)
    counted.reports.complete({"a"}, set())
    assert counted.since() == 0
    counted.reports.put("a", TWO)
    assert counted.since() == 1


def test_a_group_that_is_switched_off_has_no_report() -> None:
    counted = CountedReports()
    counted.reports.put("a", ONE)
    counted.reports.complete({"a"}, set())
    counted.since()
    counted.reports.complete(set(), set())
    assert counted.since() == 1
    assert counted.reports.get("a", LAST) is None


def test_a_group_whose_policy_cannot_be_read_keeps_its_report_also_after_a_restart() -> None:
    counted = CountedReports()
    counted.reports.put("a", ONE)
    counted.reports.complete({"a"}, set())
    counted.reports.complete(set(), {"a"})
    assert counted.reports.get("a", LAST) == ONE
    restarted = CountedReports()
    restarted.reports.complete(set(), {"a"})
    assert restarted.reports.get("a", LAST) == LAST


def test_a_process_that_leads_again_does_not_report_what_it_knew_before() -> None:
    counted = CountedReports()
    counted.reports.put("a", ONE)
    counted.reports.complete({"a"}, set())
    counted.since()
    counted.reports.invalidate()
    assert (counted.reports.get("a", LAST), counted.since()) == (LAST, 0)
