"""A component that dies comes back at once; one that keeps dying, ever later; one that ran well, at once again."""

from gpu_control_plane.local.restarts import Restarts


def delays(deaths: int) -> list[float]:
    """The waits of a component that dies the moment it is started."""
    now, history, found = 0.0, Restarts(), []
    for _ in range(deaths):
        history = history.died(now)
        assert history.next_at is not None
        found.append(history.next_at - now)
        now = history.next_at
        history = history.launched(now)
    return found


def test_the_first_restart_is_immediate_and_the_following_ever_later() -> None:
    assert delays(8) == [0, 1, 2, 4, 8, 16, 30, 30]


def test_after_a_minute_of_running_the_delay_starts_anew() -> None:
    history = Restarts().died(0).launched(0).died(1).launched(2)
    assert history.died(100).due(100)


def test_nothing_is_due_while_it_runs() -> None:
    assert not Restarts().due(1e9)
    assert not Restarts().died(0).launched(0).due(1e9)


def test_a_restart_without_delay_is_due_at_once() -> None:
    waiting = Restarts().died(0).launched(0).died(0)
    assert not waiting.due(0.5)
    assert waiting.without_delay(0.5).due(0.5)


def test_hurrying_what_runs_changes_nothing() -> None:
    assert Restarts().without_delay(5) == Restarts()


def test_restarts_are_counted() -> None:
    assert Restarts().died(0).launched(0).died(0).launched(1).total == 2
