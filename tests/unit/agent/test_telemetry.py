"""Readings are written at changes of class only: a write for every number would keep the API server busy."""

from datetime import UTC, datetime, timedelta

from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.agent.telemetry import telemetry_to_write

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def test_readings_are_told_at_changes_of_class_only() -> None:
    idle = telemetry_to_write(None, Readings(temperature=31, power=76, utilisation=0), Signals(), NOW)
    later = NOW + timedelta(minutes=1)
    warmer = Readings(temperature=40, power=90, utilisation=2)
    assert telemetry_to_write(idle, warmer, Signals(), later) is idle
    busy = telemetry_to_write(idle, Readings(temperature=60, utilisation=97), Signals(), later)
    assert (busy.utilisation, busy.at) == (97, later)
    assert telemetry_to_write(idle, warmer, Signals(xids=(31,)), later).last_xid == 31
    assert telemetry_to_write(idle, warmer, Signals(uncorrected_ecc=1), later).ecc_errors == 1


def test_a_card_that_tells_nothing_is_not_written_again_and_again() -> None:
    silent = telemetry_to_write(None, Readings(), Signals(), NOW)
    assert telemetry_to_write(silent, Readings(), Signals(), NOW + timedelta(hours=1)) is silent
