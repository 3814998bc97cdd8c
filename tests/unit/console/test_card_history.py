"""What the console remembers of cards: as much as it has room for, the latest first."""

import sys
from datetime import UTC, datetime, timedelta

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice, Telemetry
from gpu_control_plane.console.card_history import CardHistory
from unit.views.builders import card

_START = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
_LATER = _START + timedelta(days=2)


def _card(name: str = "a", *, minute: float = 0, uuid: str | None = None, busy: int | None = 50) -> GPUDevice:
    made = card()
    assert made.status.hardware is not None
    telemetry = Telemetry(utilisation=busy, power=300, at=_START + timedelta(minutes=minute))
    hardware = msgspec.structs.replace(made.status.hardware, uuid=uuid)
    status = msgspec.structs.replace(made.status, telemetry=telemetry, hardware=hardware)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, name=name), status=status)


def _busy(history: CardHistory, name: str, now: datetime = _START) -> list[int | None]:
    return [read.utilisation for read in history.of(name, now)]


def test_the_last_reading_holds_until_now() -> None:
    history = CardHistory(_START)
    history.record(_card(minute=1, busy=90), _LATER)
    history.record(_card(minute=5, busy=None), _LATER)
    assert [(read.at.minute, read.utilisation, read.power) for read in history.of("a", _START)] == [
        (1, 90, 300),
        (5, None, 300),
    ]
    assert history.of("a", _LATER + timedelta(seconds=30))[-1].at == _LATER
    assert _busy(history, "unknown", _LATER) == []


def test_what_was_read_before_the_start_begins_with_it_and_the_future_is_now() -> None:
    history = CardHistory(_START)
    history.record(_card(minute=-600, busy=3), _START)
    history.record(_card(minute=900, busy=4), _START + timedelta(minutes=2))
    assert [read.at for read in history.of("a", _START)] == [_START, _START + timedelta(minutes=2)]


def test_of_a_minute_the_last_reading_stays() -> None:
    history = CardHistory(_START)
    for second in range(60):
        history.record(_card(minute=second / 60, busy=second), _LATER)
    assert _busy(history, "a") == [59]


def test_of_a_card_a_day_is_kept() -> None:
    history = CardHistory(_START)
    for minute in range(2000):
        history.record(_card(minute=minute), _LATER)
    assert len(history.of("a", _START)) == 24 * 60


def test_the_oldest_of_all_cards_make_room() -> None:
    history = CardHistory(_START, most=10)
    history.record(_card("quiet", busy=7), _LATER)
    for minute in range(8):
        history.record(_card("a", minute=minute, busy=minute), _LATER)
    assert _busy(history, "quiet") == [7]
    for minute in range(8, 12):
        history.record(_card("a", minute=minute, busy=minute), _LATER)
    assert _busy(history, "quiet") == []
    assert _busy(history, "a") == list(range(2, 12))


def test_a_card_that_is_gone_or_was_replaced_begins_anew() -> None:
    history = CardHistory(_START)
    first, bare, second = _card(uuid="GPU-1"), _card(uuid=None, minute=1), _card(uuid="GPU-2", minute=2, busy=8)
    history.follow(None, first)
    history.follow(first, bare)
    assert _busy(history, "a") == [50, 50]
    history.follow(first, second)
    assert _busy(history, "a") == [8]
    history.follow(second, None)
    assert _busy(history, "a") == []


def test_numbers_that_no_card_shows_do_no_harm() -> None:
    history = CardHistory(_START)
    history.record(_card(busy=2**70), _LATER)
    assert _busy(history, "a") == [2**31 - 1]


def test_40_000_cards_cost_less_than_20_mb() -> None:
    history = CardHistory(_START)
    for number in range(40_000):
        history.record(_card(f"worker-{number // 8:05d}-0000-{number % 8:02x}-00-0"), _LATER)
    a_card = (sys.getsizeof(history._latest) + sum(map(sys.getsizeof, history._latest))) / 40_000 + 32
    a_reading = len(history._rows) / 40_000
    assert 40_000 * a_card + 400_000 * a_reading < 20_000_000
