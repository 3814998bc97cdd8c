"""What is worth a look on a card that stays in service: a program that failed on it, memory that wears out, heat that
rises. An Event tells each of them once, when it begins, by the same thresholds as the alert about it. Pure.

What lasts is also the reason of the Healthy condition, so that a new agent knows what an old one has told. The trends
are kept only of cards that are warm or correct memory errors: of all others there is nothing to remember.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from gpu_control_plane.agent.backends.interface import Signals
from gpu_control_plane.agent.health import COOL_CELSIUS, HOT_CELSIUS, REMAP_PENDING, HealthRules, Verdict
from gpu_control_plane.api.names import EventReason
from gpu_control_plane.kube.objects import Condition

HEATING_UP: Final = Verdict(
    True,
    "HeatingUp",
    f"The card gets hotter and will reach {HOT_CELSIUS} °C within half an hour; it is out of service then. Check its "
    "cooling.",
)
MANY_CORRECTED_ERRORS: Final = 100
"""More corrected memory errors than this within an hour are worth a look."""
MEMORY_ERRORS_RISING: Final = Verdict(
    True,
    "MemoryErrorsRising",
    f"The card corrected more than {MANY_CORRECTED_ERRORS} memory errors within an hour. Nothing is lost, but such "
    "cards often fail later: plan a test of the card.",
)
_REASONS: Final[Mapping[Verdict, EventReason]] = {
    REMAP_PENDING: EventReason.ROW_REMAPPED,
    MEMORY_ERRORS_RISING: EventReason.MEMORY_ERRORS_RISING,
    HEATING_UP: EventReason.HEATING_UP,
}

_WARM_CELSIUS: Final = COOL_CELSIUS - 10
"""Below this temperature the trend of a card is of no interest."""
_SAMPLE_SECONDS: Final = 55.0
"""Temperatures are remembered once a minute, however often the card is probed."""
_HEAT_WINDOW: Final = timedelta(minutes=10).total_seconds()
_HEAT_AHEAD: Final = timedelta(minutes=30).total_seconds()
_HEAT_HOLD: Final = timedelta(minutes=15).total_seconds()
"""How long the trend has to last: a card that has begun to work gets warm quickly, and stops."""
_ERROR_WINDOW: Final = timedelta(hours=1).total_seconds()
_LINGER: Final = timedelta(minutes=5).total_seconds()
"""How long a notice goes on after its cause has ended, so that it does not come and go."""
_REPORT_WINDOW: Final = timedelta(minutes=15).total_seconds()
"""Reports of one code that follow each other within this time are told once."""


class Sample(NamedTuple):
    at: float
    value: int


_NEVER: Final = (Sample(float("-inf"), 0),)
"""What is remembered of a card that has corrected nothing since the driver was loaded."""


class Notice(msgspec.Struct, frozen=True):
    """Something that has just begun."""

    reason: EventReason
    note: str


class NoticeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a card between two probes."""

    temperatures: tuple[Sample, ...] = ()
    leads_to_heat_since: float | None = None
    heating_until: float = 0.0
    corrected: tuple[Sample, ...] = ()
    """Counts of corrected memory errors, each when it was first seen."""
    rising_until: float = 0.0
    reported: Mapping[int, float] = {}
    """When a program last caused each error code."""
    standing: frozenset[str] = frozenset()
    """Reasons of the verdicts that were told and still hold."""


class CardNotices(NamedTuple):
    memory: NoticeMemory
    advice: tuple[Verdict, ...]
    """What holds now, the gravest first."""
    new: tuple[Notice, ...]


def card_notices(
    memory: NoticeMemory,
    signals: Signals,
    temperature: int | None,
    reports: Iterable[int],
    now: float,
    *,
    rules: HealthRules,
) -> CardNotices:
    """What a probe adds. `reports` are the error codes that are new with it."""
    memory = _with_corrected(_with_temperature(memory, temperature, now), signals.corrected_ecc, now)
    held = (
        (REMAP_PENDING, signals.remap_pending),
        (MEMORY_ERRORS_RISING, now < memory.rising_until),
        (HEATING_UP, now < memory.heating_until),
    )
    advice = tuple(verdict for verdict, holds in held if holds)
    lasting = [Notice(_REASONS[each], each.message) for each in advice if each.reason not in memory.standing]
    programs = sorted({code for code in reports if rules.is_of_program(code)})
    failed = [
        Notice(EventReason.PROGRAM_FAILED, _program_failed(rules.name(code)))
        for code in programs
        if now - memory.reported.get(code, float("-inf")) >= _REPORT_WINDOW
    ]
    after = msgspec.structs.replace(
        memory,
        standing=frozenset(each.reason for each in advice),
        reported={**memory.reported, **dict.fromkeys(programs, now)} if programs else memory.reported,
    )
    return CardNotices(after, advice, (*lasting, *failed))


def recalled_notices(condition: Condition | None, last_code: int | None, now: float) -> NoticeMemory:
    """What a new agent knows: what the old one wrote into the Healthy condition and the readings. It has no trends yet,
    and takes what lasted for lasting until it has."""
    reason = condition.reason if condition is not None else ""
    return NoticeMemory(
        heating_until=now + _HEAT_WINDOW + _HEAT_HOLD if reason == HEATING_UP.reason else 0.0,
        rising_until=now + _ERROR_WINDOW if reason == MEMORY_ERRORS_RISING.reason else 0.0,
        reported={last_code: now} if last_code is not None else {},
        standing=frozenset({reason}) if reason else frozenset(),
    )


def _program_failed(name: str) -> str:
    return f"{name}: a program on the card failed; the card stays in service. Look at the log of the pod that has it."


def _with_temperature(memory: NoticeMemory, temperature: int | None, now: float) -> NoticeMemory:
    if temperature is None or temperature < _WARM_CELSIUS:
        if not memory.temperatures and not memory.heating_until:
            return memory
        return msgspec.structs.replace(memory, temperatures=(), leads_to_heat_since=None, heating_until=0.0)
    samples = tuple(sample for sample in memory.temperatures if sample.at > now - _HEAT_WINDOW)
    if not samples or now - samples[-1].at >= _SAMPLE_SECONDS:
        samples = (*samples, Sample(now, temperature))
    leads = temperature > COOL_CELSIUS and _predicted(samples, now + _HEAT_AHEAD) > HOT_CELSIUS
    since = memory.leads_to_heat_since if leads and memory.leads_to_heat_since is not None else now if leads else None
    lasts = since is not None and now - since >= _HEAT_HOLD
    until = max(memory.heating_until, now + _LINGER) if lasts else memory.heating_until
    return msgspec.structs.replace(memory, temperatures=samples, leads_to_heat_since=since, heating_until=until)


def _predicted(samples: tuple[Sample, ...], moment: float) -> float:
    """Where the straight line that fits the samples best leads; Prometheus calls it `predict_linear`."""
    if len(samples) < 2:  # noqa: PLR2004 - a line has two points
        return float("-inf")
    middle = sum(sample.at for sample in samples) / len(samples)
    mean = sum(sample.value for sample in samples) / len(samples)
    slope = sum((sample.at - middle) * (sample.value - mean) for sample in samples) / sum(
        (sample.at - middle) ** 2 for sample in samples
    )
    return mean + slope * (moment - middle)


def _with_corrected(memory: NoticeMemory, count: int, now: float) -> NoticeMemory:
    known = memory.corrected or (_NEVER if count == 0 else ())
    if known and known[-1].value == count and now <= known[0].at + _ERROR_WINDOW:
        samples = known
    else:
        samples = known if known and known[-1].value == count else (*known, Sample(now, count))
        # What was counted when the window began stays: growth is counted from there.
        older = [sample for sample in samples if sample.at <= now - _ERROR_WINDOW]
        samples = (*older[-1:], *(sample for sample in samples if sample.at > now - _ERROR_WINDOW))
    until = now + _LINGER if _growth(samples) > MANY_CORRECTED_ERRORS else 0.0
    return msgspec.structs.replace(memory, corrected=samples, rising_until=max(memory.rising_until, until))


def _growth(samples: tuple[Sample, ...]) -> int:
    """By how much the count has grown. A driver that was loaded anew counts from nothing."""
    return sum(
        after.value - before.value if after.value >= before.value else after.value
        for before, after in pairwise(samples)
    )
