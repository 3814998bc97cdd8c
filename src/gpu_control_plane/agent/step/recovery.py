"""When a faulted card is trusted again: the verdicts of single probes in, one that does not flap out.

A card falls at once and rises slowly: only after several good probes in a row over some time, at once when a person
says that it is mended and the next probe agrees. A card that falls again soon waits twice as long each time. The
memory is plain data; what must outlive the agent is in the card's Healthy condition, so a restart heals nothing.
"""

from typing import Final, NamedTuple

import msgspec

from gpu_control_plane.agent.backends.interface import Signals
from gpu_control_plane.agent.health import (
    CONTAINED,
    COOL_CELSIUS,
    HOT_CELSIUS,
    OVERHEATED,
    REMAP_PENDING,
    HealthRules,
    Verdict,
    unseen,
    verdict,
)
from gpu_control_plane.agent.timings import HealthTimings
from gpu_control_plane.kube.conditions import FALSE, TRUE
from gpu_control_plane.kube.objects import Condition

WATCHED: Final = " It looks well again and is watched for a while before it returns; clear the fault to skip that."


class RecoveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much proof a card has to give."""

    probes: int = 3
    """Good probes in a row."""
    seconds: float = HealthTimings().recovery_period.total_seconds()
    """The least time between the first of them and the last; doubled with every fall that follows soon."""
    longest: float = 3600.0
    """The longest that a card is made to wait, and how long it has to work for its past to be forgotten."""
    hot: int = HOT_CELSIUS
    """Degrees Celsius from which a card is too hot even if it does not slow itself down."""
    cool: int = COOL_CELSIUS
    """Degrees Celsius to which a card that was too hot has to cool down."""


class CardHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a card between two probes."""

    fault: Verdict | None = None
    """Why it is out of service; None while it serves."""
    good: int = 0
    """Good probes in a row since it fell."""
    good_since: float = 0.0
    recovered_at: float | None = None
    """When it last came back into service."""
    falls: int = 0
    """How often it has fallen again soon after it came back."""
    known: tuple[int, ...] = ()
    """Error reports that have been judged already."""
    clears: int = 0
    """How often the backend had cleared the error reports by then."""
    contained: int | None = 0
    """Memory errors that harmed one program only; None means as many as the next probe shows."""


class Judgement(NamedTuple):
    """The answer to one probe."""

    memory: CardHealth
    verdict: Verdict
    next_probe: float | None
    """When to probe again at the latest; None leaves that to the usual interval."""
    forget: bool
    """The card has just come back: have the backend forget its error reports, they count as new otherwise."""


RECOVERY: Final = RecoveryPolicy()


def judge(
    memory: CardHealth,
    signals: Signals,
    now: float,
    *,
    rules: HealthRules,
    cleared: bool = False,
    temperature: int | None = None,
    policy: RecoveryPolicy = RECOVERY,
) -> Judgement:
    """What a full probe of the card means, given what came before it, by the rules of the card's vendor.

    `cleared` is a person's word that the card is mended: the backend has forgotten its error reports before this
    probe, so whatever it reports is new. `now` is in seconds of any clock that goes on across restarts.
    """
    if memory.clears != signals.clears:
        memory = msgspec.structs.replace(memory, known=(), clears=signals.clears)
    if cleared:
        memory = msgspec.structs.replace(memory, known=(), falls=0)
    hot = _too_hot(memory, signals, temperature, policy)
    contained = _contained(memory, signals, rules)
    forgiven = 0 < signals.uncorrected_ecc <= contained
    counted = msgspec.structs.replace(signals, xids=unseen(memory.known, signals.xids), overheated=hot)
    found = verdict(counted, rules, contained=forgiven)
    memory, fault = msgspec.structs.replace(memory, known=signals.xids, contained=contained), memory.fault
    if fault is None:
        return Judgement(memory, found, None, False) if found.healthy else _fall(memory, found, now, policy)
    if not found.healthy:
        # Everything since the fall counts here: what made the card fall stays the reason while it is not well.
        everything = msgspec.structs.replace(counted, xids=(*signals.xids, *counted.xids))
        worst = verdict(everything, rules, contained=forgiven)
        memory = msgspec.structs.replace(memory, fault=worst, good=0)
        return Judgement(memory, worst, now + _interval(memory, policy), False)
    return _rise(memory, fault, found, now, cleared=cleared, policy=policy)


def recalled(condition: Condition | None) -> CardHealth:
    """What a new agent knows of a card: what the old one wrote into its Healthy condition. No proof is carried over."""
    if condition is None or condition.status not in (TRUE, FALSE):
        return CardHealth()
    if condition.status == FALSE:
        return CardHealth(fault=Verdict(False, condition.reason, condition.message.removesuffix(WATCHED)))
    return CardHealth(
        recovered_at=condition.last_transition_time.timestamp(),
        contained=None if condition.reason in (CONTAINED.reason, REMAP_PENDING.reason) else 0,
    )


def _fall(memory: CardHealth, found: Verdict, now: float, policy: RecoveryPolicy) -> Judgement:
    soon = memory.recovered_at is not None and now - memory.recovered_at < policy.longest
    memory = msgspec.structs.replace(memory, fault=found, good=0, falls=memory.falls + 1 if soon else 0)
    return Judgement(memory, found, now + _interval(memory, policy), False)


def _rise(
    memory: CardHealth, fault: Verdict, found: Verdict, now: float, *, cleared: bool, policy: RecoveryPolicy
) -> Judgement:
    """A good probe of a card that is out of service."""
    since = min(memory.good_since, now) if memory.good else now
    good = memory.good + 1
    due = since + _wait(memory, policy)
    if cleared or (good >= policy.probes and now >= due):
        back = msgspec.structs.replace(memory, fault=None, good=0, good_since=0.0, recovered_at=now)
        return Judgement(back, found, None, True)
    memory = msgspec.structs.replace(memory, good=good, good_since=since)
    again = now + _interval(memory, policy)
    held = Verdict(False, fault.reason, fault.message + WATCHED)
    return Judgement(memory, held, min(again, due) if due > now else again, False)


def _wait(memory: CardHealth, policy: RecoveryPolicy) -> float:
    return min(policy.seconds * 2.0 ** min(memory.falls, 32), policy.longest)


def _interval(memory: CardHealth, policy: RecoveryPolicy) -> float:
    """Spreads the probes over the wait; a card that waits long is still looked at as often as any other."""
    return min(_wait(memory, policy) / max(policy.probes - 1, 1), policy.seconds)


def _too_hot(memory: CardHealth, signals: Signals, temperature: int | None, policy: RecoveryPolicy) -> bool:
    """Between the two thresholds a card stays what it was."""
    if signals.overheated:
        return True
    if temperature is None:
        return False
    was_hot = memory.fault is not None and memory.fault.reason == OVERHEATED.reason
    return temperature > policy.cool if was_hot else temperature >= policy.hot


def _contained(memory: CardHealth, signals: Signals, rules: HealthRules) -> int:
    """How many memory errors are forgiven: those reported as contained, until a reset sets the count back."""
    reports = unseen(memory.known, signals.xids)
    reported = any(map(rules.is_contained, reports)) and memory.fault is None and not rules.faults(reports)
    if memory.contained is None or reported:
        return signals.uncorrected_ecc
    return min(memory.contained, signals.uncorrected_ecc)
