"""Waiting times: declared once in the code; the chart, its schema and docs/settings.md have the same."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tools import settings_page

from gpu_control_plane.kube.fields import about
from gpu_control_plane.settings import (
    DURATION,
    UnknownTiming,
    WaitingTime,
    format_duration,
    parse_duration,
    parse_timings,
    waiting_times,
    with_timings,
)

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/gpu-control-plane"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    grace_period: Annotated[timedelta, about("How long.")] = timedelta(minutes=10)
    writes_at_once: int = 32


def declared() -> Iterator[tuple[str, str, WaitingTime]]:
    for process, groups in settings_page.PROCESSES.items():
        for group, settings in groups.items():
            for one in waiting_times(settings):
                yield process, group, one


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / settings_page.PAGE).read_text() == settings_page.page(), "run `make generate`"


def test_every_waiting_time_has_a_sentence_and_whole_seconds() -> None:
    found = list(declared())
    assert len(found) >= 8
    for _, _, one in found:
        assert one.meaning.endswith(".")
        assert parse_duration(format_duration(one.default)) == one.default


def test_the_chart_has_exactly_the_defaults_of_the_code() -> None:
    expected: dict[str, dict[str, dict[str, str]]] = {}
    for process, group, one in declared():
        expected.setdefault(process, {}).setdefault(group, {})[one.name] = format_duration(one.default)
    assert {process: VALUES[process]["timings"] for process in expected} == expected


def test_the_chart_explains_each_with_the_sentence_of_the_code() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    for _, _, one in declared():
        at = next(number for number, line in enumerate(lines) if line.strip().startswith(f"{one.name}:"))
        start = at
        while lines[start - 1].strip().startswith("#"):
            start -= 1
        assert " ".join(line.strip().removeprefix("# ") for line in lines[start:at]) == one.meaning


def test_the_schema_knows_exactly_these_and_what_a_duration_is() -> None:
    assert SCHEMA["definitions"]["duration"]["pattern"] == DURATION
    for process, groups in settings_page.PROCESSES.items():
        known: dict[str, Any] = SCHEMA["properties"][process]["properties"]["timings"]
        assert known["additionalProperties"] is False
        assert set(known["properties"]) == set(groups)
        for group, settings in groups.items():
            part = known["properties"][group]
            assert part["additionalProperties"] is False
            assert part["properties"] == {
                one.name: {"$ref": "#/definitions/duration"} for one in waiting_times(settings)
            }


@given(st.integers(0, 99_999))
def test_a_duration_is_read_as_it_is_written(seconds: int) -> None:
    time = timedelta(seconds=seconds)
    assert parse_duration(format_duration(time)) == time


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "1.5s", "5M", "forever"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UnknownTiming, match="is no duration: write 90s, 5m or 1h30m"):
        parse_duration(text)


def test_only_waiting_times_can_be_set() -> None:
    assert with_timings(Settings(), {"gracePeriod": "1h30m"}).grace_period == timedelta(minutes=90)
    assert with_timings(Settings(), {}) == Settings()
    with pytest.raises(UnknownTiming, match="there is no waiting time writesAtOnce: there are gracePeriod"):
        with_timings(Settings(), {"writesAtOnce": "1s"})


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("nodeGracePeriod=5m", "write a waiting time as"),
        ("inventory.nodeGracePeriod", "write a waiting time as"),
        ("ray.idle=5m", "there is no group ray of waiting times: there are inventory"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_what_there_is(option: str, why: str) -> None:
    with pytest.raises(UnknownTiming, match=why):
        parse_timings([option], ["inventory"])
