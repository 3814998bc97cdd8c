"""What campaigns report: a restart is no news, and neither is a policy that nobody can read."""

from gpu_control_plane.api.nvidia.status import UpgradeReport
from gpu_control_plane.operator.upgrade.reports import Reports

ONE, TWO, LAST = UpgradeReport(total=1), UpgradeReport(total=2), UpgradeReport(total=9)


class Told:
    """How often somebody was told."""

    def __init__(self) -> None:
        self.times = 0
        self.reports = Reports(self._tell)

    def _tell(self) -> None:
        self.times += 1

    def since(self) -> int:
        times, self.times = self.times, 0
        return times


def test_until_all_campaigns_were_looked_at_the_last_word_counts() -> None:
    told = Told()
    assert told.reports.get("a", LAST) == LAST
    told.reports.put("a", ONE)
    assert (told.reports.get("a", LAST), told.reports.get("b", LAST)) == (ONE, LAST)
    told.since()
    told.reports.settle({"a"}, set())
    assert told.since() == 1
    assert (told.reports.get("a", LAST), told.reports.get("b", LAST)) == (ONE, None)


def test_only_news_is_told() -> None:
    told = Told()
    told.reports.put("a", ONE)
    told.reports.settle({"a"}, set())
    told.since()
    told.reports.put("a", ONE)
    told.reports.settle({"a"}, set())
    assert told.since() == 0
    told.reports.put("a", TWO)
    assert told.since() == 1


def test_a_campaign_that_is_switched_off_has_no_report() -> None:
    told = Told()
    told.reports.put("a", ONE)
    told.reports.settle({"a"}, set())
    told.since()
    told.reports.settle(set(), set())
    assert told.since() == 1
    assert told.reports.get("a", LAST) is None


def test_a_campaign_that_nobody_can_read_keeps_its_report_also_after_a_restart() -> None:
    told = Told()
    told.reports.put("a", ONE)
    told.reports.settle({"a"}, set())
    told.reports.settle(set(), {"a"})
    assert told.reports.get("a", LAST) == ONE
    restarted = Told()
    restarted.reports.settle(set(), {"a"})
    assert restarted.reports.get("a", LAST) == LAST


def test_who_leads_again_does_not_tell_what_it_knew_before() -> None:
    told = Told()
    told.reports.put("a", ONE)
    told.reports.settle({"a"}, set())
    told.since()
    told.reports.doubt()
    assert (told.reports.get("a", LAST), told.since()) == (LAST, 0)
