"""Whoever has no Prometheus learns of the same: each alert's situation, raised, writes its Events and its log lines."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pytest
from monitoring.alert import EVENT_RECORDED, Alert
from monitoring.alerts.groups import ALERTS
from structlog.testing import capture_logs

from gpu_control_plane.agent.backends.interface import Signals
from gpu_control_plane.agent.step.card_notices import NoticeMemory, card_notices
from gpu_control_plane.agent.vendors.nvidia.health import RULES
from gpu_control_plane.kube import Client, EventRecorder
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.metrics import Metrics
from monitoring.raised_events import NOON, RAISED
from monitoring.situations import Series, Situation
from monitoring.situations_of_cards import CARDS

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


class KeepingClient:
    """Keeps the Events that would be written."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.events: list[Event] = []

    async def create(self, _kind: type[Event], event: Event, _namespace: str) -> Event:
        self.events.append(event)
        return event


async def _written(recorder: EventRecorder, client: KeepingClient) -> list[Event]:
    writing = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait((writing,))
    return client.events


def test_every_alert_is_raised() -> None:
    assert RAISED.keys() == {alert.name for alert in ALERTS}


@every_alert
async def test_what_it_is_about_writes_its_events_and_log_lines(alert: Alert, tmp_path: Path) -> None:
    client = KeepingClient()
    recorder = EventRecorder(cast("Client", client), "test", "one", now=lambda: NOON)
    with capture_logs() as log:
        await RAISED[alert.name](recorder, tmp_path)
    events = await _written(recorder, client)
    promised = {str(reason) for reason in alert.events}
    warned = {event.reason for event in events if event.type == "Warning"}
    logged = {line["reason"] for line in log if line["event"] == EVENT_RECORDED.event}
    assert promised <= warned
    assert promised <= logged
    assert alert.log is None or alert.log.event in {line["event"] for line in log}


@every_alert
async def test_what_lasts_is_told_once(alert: Alert, tmp_path: Path) -> None:
    """Whatever is looked at again and again, such as a hot card, has one Event, not one for each look."""
    client = KeepingClient()
    recorder = EventRecorder(cast("Client", client), "test", "one", now=lambda: NOON)
    await RAISED[alert.name](recorder, tmp_path)
    events = [event for event in await _written(recorder, client) if event.reason in set(map(str, alert.events))]
    told = Counter((event.reason, event.regarding, event.note) for event in events)
    assert set(told.values()) == {1}
    assert all(event.series is None for event in events)


_FOLLOWED: Final = ("GPUCardHeatingUp", "GPUMemoryErrorsRising")


@pytest.mark.parametrize(
    "situation",
    [each for each in CARDS if each.alert in _FOLLOWED],
    ids=lambda each: f"{each.alert}: {each.name}",
)
def test_the_agent_sees_a_trend_where_prometheus_does(situation: Situation) -> None:
    memory, told = NoticeMemory(), 0
    for minute, (temperature, corrected) in enumerate(_minutes(situation.series)):
        signals = Signals(corrected_ecc=corrected or 0)
        found = card_notices(memory, signals, temperature, (), 60.0 * minute, rules=RULES)
        memory = found.memory
        told += len(found.new)
    assert told == bool(situation.fires)


def _minutes(series: Series) -> Iterator[tuple[int | None, int | None]]:
    """Temperature and corrected errors of one card, minute by minute, whichever pod has it."""
    yield from zip(_of(series, "DCGM_FI_DEV_GPU_TEMP"), _of(series, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"), strict=True)


def _of(series: Series, metric: str) -> list[int | None]:
    columns = [[*_values(text)] for name, text in series.items() if name.startswith(metric)]
    longest = max(len([*_values(text)]) for text in series.values())
    padded = [column + [None] * (longest - len(column)) for column in columns]
    return [
        max((value for column in padded if (value := column[minute]) is not None), default=None)
        for minute in range(longest)
    ]


def _values(text: str) -> Iterator[int | None]:
    """As promtool reads them: `60+0.5x70` is 71 values, `_x12` twelve that are missing."""
    for word in text.split():
        if missing := re.fullmatch(r"_(?:x(\d+))?|stale", word):
            yield from [None] * int(missing[1] or 1)
            continue
        found = re.fullmatch(r"([\d.]+)(?:\+([\d.]+))?(?:x(\d+))?", word)
        assert found is not None, word
        first, more, times = float(found[1]), float(found[2] or 0), int(found[3] or 0)
        yield from (int(first + more * number) for number in range(times + 1))
