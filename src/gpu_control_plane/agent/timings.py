"""The waiting times of the agent, which docs/settings.md lists and the chart sets."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Final

import msgspec

from gpu_control_plane.kube.fields import about
from gpu_control_plane.settings import parse_timings, with_timings


class HealthTimings(msgspec.Struct, frozen=True, kw_only=True):
    """How often cards are probed, and how long a faulted one stays out of service."""

    probe_interval: Annotated[
        timedelta, about("How often cards are probed. Most faults are reported by the driver at once.")
    ] = timedelta(seconds=15)
    recovery_period: Annotated[
        timedelta,
        about("How long a faulted card has to look well before it returns; doubled each time it soon fails again."),
    ] = timedelta(minutes=1)


TIMING_GROUPS: Final = {"health": HealthTimings}
"""By group, the settings that have waiting times."""


def health_timings(options: Iterable[str]) -> HealthTimings:
    """The waiting times with those that were given as options, such as `health.probeInterval=30s`."""
    return with_timings(HealthTimings(), parse_timings(options, TIMING_GROUPS)["health"])
