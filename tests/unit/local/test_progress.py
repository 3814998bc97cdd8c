"""Plain progress: silent for quick work, a line now and then for slow work."""

import io

import pytest

from gpu_control_plane.local.progress import Lines, duration


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_quick_steps_print_nothing() -> None:
    stream = io.StringIO()
    with Lines(stream, Clock()).step("Quick") as step:
        step.detail("half")
    assert stream.getvalue() == ""


def test_slow_steps_say_how_far_they_are_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with Lines(stream, clock).step("Slow") as step:
        for clock.now in range(1, 15):
            step.detail(f"{clock.now} of 14")
    assert stream.getvalue().splitlines() == [
        "Slow: 2 of 14 (2.0 s)",
        "Slow: 12 of 14 (12 s)",
        "Slow: done (14 s)",
    ]


def test_a_failed_step_is_not_done() -> None:
    stream, clock = io.StringIO(), Clock()

    def fail() -> None:
        with Lines(stream, clock).step("Slow"):
            clock.now = 5
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        fail()
    assert "done" not in stream.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((-1, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (12.4, "12 s"), (59, "59 s"), (65, "1 min 5 s")),
        *((600, "10 min"), (3600, "1 h"), (7810, "2 h 10 min"), (4 * 86400 + 3 * 3600 + 5, "4 d 3 h")),
    ],
)
def test_durations_in_at_most_two_units(value: float, text: str) -> None:
    assert duration(value) == text
