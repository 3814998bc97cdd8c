"""Sessions end: by time, by disuse, by number, by signing out."""

import msgspec

from gpu_control_plane.console.identity import Person
from gpu_control_plane.console.sign_in.sessions import Session, Sessions

ALICE = Person(name="alice")


class Clock(msgspec.Struct):
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def _sessions(clock: Clock, most: int = 100) -> Sessions:
    return Sessions(now=clock, lifetime=100, idle=10, most=most, on_count=lambda _count: None)


def _session(clock: Clock, person: Person = ALICE) -> Session:
    return Session(person=person, way="token", token="secret", began=clock(), seen=clock())


def test_a_session_is_found_by_its_cookie_alone() -> None:
    clock = Clock()
    sessions = _sessions(clock)
    session = _session(clock)
    cookie = sessions.open(session)
    assert sessions.find(cookie) is session
    assert sessions.find(cookie[:-1]) is None
    assert sessions.find("") is None
    assert "secret" not in cookie


def test_a_session_that_is_not_used_ends() -> None:
    clock = Clock()
    sessions = _sessions(clock)
    session = _session(clock)
    cookie = sessions.open(session)
    clock.now += 9
    assert sessions.find(cookie) is session
    clock.now += 9
    assert sessions.find(cookie) is session
    clock.now += 11
    assert sessions.find(cookie) is None
    assert session.ended.is_set()


def test_no_session_outlives_its_lifetime() -> None:
    clock = Clock()
    sessions = _sessions(clock)
    cookie = sessions.open(_session(clock))
    for _ in range(25):
        clock.now += 5
        sessions.find(cookie)
    assert sessions.find(cookie) is None


def test_signing_out_ends_the_session_and_its_streams() -> None:
    clock = Clock()
    sessions = _sessions(clock)
    session = _session(clock)
    cookie = sessions.open(session)
    sessions.close(session)
    assert sessions.find(cookie) is None
    assert session.ended.is_set()


def test_the_number_of_sessions_is_bounded() -> None:
    clock = Clock()
    sessions = _sessions(clock, most=50)
    cookies = [sessions.open(_session(clock, Person(name=f"person-{number}"))) for number in range(60)]
    assert len(sessions) == 50
    assert sessions.find(cookies[0]) is None
    assert sessions.find(cookies[-1]) is not None


def test_one_person_cannot_push_the_others_out() -> None:
    clock = Clock()
    sessions = _sessions(clock, most=50)
    bob = sessions.open(_session(clock, Person(name="bob")))
    for _ in range(200):
        sessions.open(_session(clock))
    assert sessions.find(bob) is not None
    assert len(sessions) == 21
