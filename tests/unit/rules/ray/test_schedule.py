"""Schedules: which texts are some, and when they are due."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.rules.ray.schedule import BadSchedule, Schedule

FIVE = "write minute, hour, day, month and weekday, such as 30 2 * * *, or @daily"
BERLIN = ZoneInfo("Europe/Berlin")


def times(text: str, after: str, count: int = 1, zone: ZoneInfo | None = None) -> list[str]:
    """The next times, as minutes in UTC."""
    found: list[str] = []
    moment: datetime | None = datetime.fromisoformat(after).replace(tzinfo=UTC)
    for _ in range(count):
        assert moment is not None
        moment = Schedule.parse(text).next_after(moment, zone)
        found.append(moment.strftime("%Y-%m-%d %H:%M") if moment else "never")
    return found


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("* * * * *", "2026-11-18 12:00:30", "2026-11-18 12:01"),
        ("*/15 * * * *", "2026-11-18 12:15", "2026-11-18 12:30"),
        ("5/20 * * * *", "2026-11-18 12:26", "2026-11-18 12:45"),
        ("30 2 * * *", "2026-11-18 12:00", "2026-11-19 02:30"),
        ("0 9-17/4 * * mon-fri", "2026-11-20 17:00", "2026-11-23 09:00"),
        ("0 0 1 jan,Jul ?", "2026-11-18 12:00", "2027-01-01 00:00"),
        ("0 0 13 * 5", "2026-11-18 12:00", "2026-11-20 00:00"),  # the 13th or a Friday
        ("0 0 */13 * 5", "2026-11-18 12:00", "2026-11-20 00:00"),  # the 1st, 14th and 27th, or a Friday
        ("0 0 27,* * 5", "2026-11-21 12:00", "2026-11-27 00:00"),  # every day that is a Friday
        ("0 0 * * 7", "2026-11-18 12:00", "2026-11-22 00:00"),
        ("0 0 * * 3/2", "2026-11-21 12:00", "2026-11-25 00:00"),  # Wednesday and Friday, not Sunday
        ("0 0 29 2 *", "2026-11-18 12:00", "2028-02-29 00:00"),
        ("0 0 30 2 *", "2026-11-18 12:00", "never"),
        ("@daily", "2026-11-18 12:00", "2026-11-19 00:00"),
        ("@hourly", "2026-11-18 12:00", "2026-11-18 13:00"),
        ("@every 90m", "2026-11-18 12:00", "2026-11-18 13:30"),
        ("TZ=Europe/Berlin 0 3 * * *", "2026-11-18 12:00", "2026-11-19 02:00"),
        ("CRON_TZ=Asia/Kolkata 0 3 * * *", "2026-11-18 12:00", "2026-11-18 21:30"),
    ],
)
def test_the_next_time_of(text: str, after: str, due: str) -> None:
    assert times(text, after) == [due]


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("30 2 * * *", "2027-03-27 12:00", ["2027-03-29 00:30"]),  # on the 28th there is no half past two
        ("0 * * * *", "2027-03-28 00:30", ["2027-03-28 01:00", "2027-03-28 02:00"]),
        ("30 2 * * *", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-25 01:30"]),  # it comes twice
        ("0 0 * * *", "2026-10-25 12:00", ["2026-10-25 23:00"]),
    ],
)
def test_clocks_that_change(text: str, after: str, due: list[str]) -> None:
    assert times(text, after, len(due), BERLIN) == due


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "every day",
            f"'every day' has 2 fields instead of 5: {FIVE}",
        ),
        ("* 24 * * *", "'24' is not possible in the field hour: write 0 to 23"),
        ("* * 0 * *", "'0' is not possible in the field day: write 1 to 31"),
        ("* * * dec-feb *", "'dec-feb' in the field month ends before it begins: write the smaller one first"),
        ("* * * * som", "'som' is not possible in the field weekday: write 0 to 6, or a name such as sun"),
        ("*/0 * * * *", "'0' is not possible in the field minute: write 1 to 9999"),
        ("1,,2 * * * *", "'' is not possible in the field minute: write 0 to 59"),
        ("@every soon", "'@every soon' has no duration: write @every 90s, @every 10m or @every 1h30m"),
        ("@every 59s", "'@every 59s' is too often: write @every 1m or longer, since a minute has one job"),
        ("TZ=Nowhere * * * * *", "Nowhere is no time zone that is known here: write one such as Europe/Berlin"),
    ],
)
def test_no_schedule_is(text: str, why: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        Schedule.parse(text)
    assert str(caught.value) == why


START = datetime(2024, 1, 1, tzinfo=UTC)
_FIELD = st.sampled_from(["*", "0", "5", "*/7", "1-5", "3,9"])


@given(
    minute=_FIELD,
    hour=_FIELD,
    weekday=st.sampled_from(["*", "1-5", "0", "sat"]),
    after=st.integers(0, 6 * 365 * 86400).map(lambda seconds: START + timedelta(seconds=seconds)),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]),
)
def test_the_next_time_is_later_fits_and_comes_in_a_week_or_so(
    minute: str, hour: str, weekday: str, after: datetime, zone: str
) -> None:
    schedule = Schedule.parse(f"{minute} {hour} * * {weekday}")
    due = schedule.next_after(after, ZoneInfo(zone))
    assert due is not None
    assert after < due <= after + timedelta(days=15)
    local = due.astimezone(ZoneInfo(zone))
    assert local.minute in schedule.minutes
    assert local.hour in schedule.hours
    assert local.isoweekday() % 7 in schedule.weekdays


@given(st.text())
def test_any_text_is_a_schedule_or_is_told_why_not(text: str) -> None:
    with suppress(BadSchedule):
        assert Schedule.parse(text).next_after(START) != START
