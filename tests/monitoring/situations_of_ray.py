"""Situations of Ray. Time begins at zero: what waits since 0 has waited for 15 minutes at minute 15."""

from typing import Final

from monitoring.situations import LEADER, Fired, Situation, lasting, led, stale

_GROUP: Final = {"namespace": "research", "cluster": "eval", "group": "gpu"}
_NAMED: Final = {"namespace": "research", "name": "train"}
_JOB: Final = "gpu_ray_job_waiting_since_timestamp_seconds"
_SERVICE: Final = "gpu_ray_service_not_ready_since_timestamp_seconds"


def _since(alert: str, metric: str) -> tuple[Situation, ...]:
    return (
        Situation(
            alert=alert,
            name="it has waited since the beginning",
            series={**LEADER, led(metric, **_NAMED): "0x30"},
            fires=(Fired(_NAMED),),
            since=16,
        ),
        Situation(
            alert=alert,
            name="it is well after a quarter of an hour",
            series={**LEADER, led(metric, **_NAMED): "0x15 stale"},
            after=30,
        ),
        Situation(
            alert=alert,
            name="another try begins",
            series={**LEADER, led(metric, **_NAMED): "0x10 600x14 stale"},
            after=24,
        ),
        Situation(
            alert=alert,
            name="a former leader saw it wait",
            series={**LEADER, stale(metric, **_NAMED): "0x30"},
            after=30,
        ),
    )


RAY: Final = (
    *lasting(
        "GPURayWorkersWait",
        led("gpu_ray_workers_waiting", **_GROUP),
        hold=15,
        value="3",
        fired=Fired(_GROUP, "3"),
    ),
    Situation(
        alert="GPURayWorkersWait",
        name="a former leader saw them wait",
        series={**LEADER, stale("gpu_ray_workers_waiting", **_GROUP): "3x30"},
        after=30,
    ),
    *_since("GPURayJobWaits", _JOB),
    *_since("GPURayServiceNotReady", _SERVICE),
)
