"""What Prometheus is asked, and what its answers mean. Pure.

Every container that holds a card, or a MIG instance, has a series of what the card measures, under the names of
dcgm-exporter. Prometheus adds them up itself, so that an answer has a number for each group and not for each scrape.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import BUSY_PERCENT
from gpu_control_plane.usage.hours import By, Hours, part_of_card

PROFILE: Final = "GPU_I_PROFILE"
_CARD: Final = "UUID, GPU_I_ID"
_SERIES: Final = f"{_CARD}, {PROFILE}, namespace, pod, container, Hostname, modelName"
_HOLDERS: Final = f'group by ({_SERIES}) (DCGM_FI_DEV_FB_FREE{{pod!=""}})'
_SHARE: Final = f"{_HOLDERS} / on ({_CARD}) group_left () count by ({_CARD}) ({_HOLDERS})"
"""For each container, its part of the card: all of it, unless others share it."""
_BUSY: Final = (
    f'(max by ({_SERIES}) (DCGM_FI_DEV_GPU_UTIL{{pod!=""}}) '
    f'or 100 * max by ({_SERIES}) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{{pod!=""}}))'
)
"""For each container, how busy it keeps the card, in percent; on MIG instances NVML counts engines only."""

LABELS: Final[Mapping[By, tuple[str, ...]]] = {
    By.NAMESPACE: ("namespace",),
    By.POOL: ("UUID",),
    By.OWNER: ("namespace", "pod"),
    By.MODEL: ("modelName",),
    By.NODE: ("Hostname",),
}
"""By which labels Prometheus groups; pools and owners are then looked up."""

OWNERS: Final = "kube_pod_owner"
"""Of kube-state-metrics: what made a pod."""

_STEPS: Final = 2016
"""At most so many moments are looked at: every five minutes of a week."""
_LEAST_STEP: Final = timedelta(seconds=15)


class Sample(msgspec.Struct, frozen=True):
    """One number of an answer."""

    labels: Mapping[str, str]
    value: float


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What Prometheus answers to `questions`, in hours of cards."""

    held: Sequence[Sample]
    used: Sequence[Sample]
    idle: Sequence[Sample]
    measured: Sequence[Sample]


def step_for(since: timedelta, least: timedelta = _LEAST_STEP) -> timedelta:
    """How far apart the moments are that are looked at."""
    return max(least, timedelta(seconds=round(since.total_seconds() / _STEPS)))


def questions(by: By, since: timedelta, step: timedelta) -> dict[str, str]:
    """The expressions, by the field of `Answers`."""
    expressions = {
        "held": f"({_SHARE})",
        "used": f"({_BUSY} / 100 and on ({_SERIES}) {_HOLDERS})",
        "idle": f"({_SHARE} and on ({_SERIES}) ({_BUSY} < {BUSY_PERCENT}))",
        "measured": f"({_SHARE} and on ({_SERIES}) {_BUSY})",
    }
    return {name: _summed(expression, by, since, step) for name, expression in expressions.items()}


def coverage_question(since: timedelta, step: timedelta) -> str:
    """For how many hours of the time Prometheus knows of any card."""
    hours = step.total_seconds() / 3600
    return f"count_over_time((count(DCGM_FI_DEV_FB_FREE))[{_span(since)}:{_span(step)}]) * {hours!r}"


def owners_question(since: timedelta) -> str:
    return f"group by (namespace, pod, owner_kind, owner_name) (last_over_time({OWNERS}[{_span(since)}]))"


def hours_from(answers: Answers, by: By, name: Callable[[Mapping[str, str]], str]) -> list[Hours]:
    """The answers as hours; `name` says which group the labels stand for."""
    labels = (*LABELS[by], PROFILE)
    used, idle, measured = (_by_key(each, labels) for each in (answers.used, answers.idle, answers.measured))
    found = []
    for sample in answers.held:
        key = tuple(sample.labels.get(label, "") for label in labels)
        part = part_of_card(sample.labels.get(PROFILE, ""))
        known = measured.get(key, 0.0)
        found.append(
            Hours(
                key=name(sample.labels),
                held=sample.value * part,
                used=used.get(key, 0.0) * part if known else None,
                idle=idle.get(key, 0.0) * part if known else None,
                measured=known * part,
            )
        )
    return found


def owners_from(samples: Sequence[Sample]) -> dict[tuple[str, str], str]:
    """By namespace and pod, what made it."""
    return {
        (sample.labels.get("namespace", ""), sample.labels.get("pod", "")): owner_name(
            sample.labels.get("namespace", ""), sample.labels.get("owner_kind", ""), sample.labels.get("owner_name", "")
        )
        for sample in samples
        if sample.labels.get("owner_name", "<none>") != "<none>"
    }


def owner_name(namespace: str, kind: str, name: str) -> str:
    """An owner as it is shown."""
    return f"{namespace}/{kind}/{name}"


def _by_key(samples: Sequence[Sample], labels: Sequence[str]) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.get(label, "") for label in labels): sample.value for sample in samples}


def _summed(expression: str, by: By, since: timedelta, step: timedelta) -> str:
    labels = ", ".join((*LABELS[by], PROFILE))
    hours = step.total_seconds() / 3600
    return f"sum by ({labels}) (sum_over_time({expression}[{_span(since)}:{_span(step)}])) * {hours!r}"


def _span(time: timedelta) -> str:
    return f"{max(int(time.total_seconds()), 1)}s"
