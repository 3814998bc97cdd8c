"""When credentials are fetched again. The clock is the test's."""

import asyncio
import math
from pathlib import Path

import pytest
from multidict import CIMultiDict

from gpu_control_plane.kube.credentials import (
    REREAD_AFTER_SECONDS,
    Access,
    AccessMaker,
    Credentials,
    FetchedCredentials,
    FileSource,
    Identity,
)
from gpu_control_plane.kube.errors import CredentialsError


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time

    def pass_(self, seconds: float) -> None:
        self.time += seconds


class Numbered:
    """A source whose n-th token is `token-n`; it can be made to fail, to be slow, or to repeat itself."""

    def __init__(self, clock: Clock, *, life: float = math.inf, leeway: float = 0.0) -> None:
        self._clock = clock
        self._life = life
        self._leeway = leeway
        self.fetched = 0
        self.failing = False
        self.repeating = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self) -> FetchedCredentials:
        self.fetched += 1
        await self.gate.wait()
        if self.failing:
            raise CredentialsError("no luck")
        number = 1 if self.repeating else self.fetched
        expires_at = self._clock() + self._life
        return FetchedCredentials(
            identity=Identity(authorization=f"token-{number}"),
            renew_at=expires_at - self._leeway,
            expires_at=expires_at,
        )


def credentials(source: Numbered, clock: Clock) -> Credentials:
    return Credentials(source, AccessMaker(None), now=clock)


def token(access: Access) -> str:
    return access.headers["Authorization"]


async def test_credentials_are_fetched_once_while_nothing_changes() -> None:
    clock = Clock()
    source = Numbered(clock)
    held = credentials(source, clock)
    first = await held.current()
    clock.pass_(10_000)
    assert await held.current() is first
    assert source.fetched == 1


async def test_many_requests_at_once_cause_one_fetch() -> None:
    clock = Clock()
    source = Numbered(clock)
    held = credentials(source, clock)
    seen = await asyncio.gather(*(held.current() for _ in range(50)))
    assert {token(access) for access in seen} == {"token-1"}
    assert source.fetched == 1


async def test_many_rejections_of_one_access_cause_one_fetch() -> None:
    clock = Clock()
    source = Numbered(clock)
    held = credentials(source, clock)
    old = await held.current()

    async def request() -> str:
        held.rejected(old)
        return token(await held.current())

    assert set(await asyncio.gather(*(request() for _ in range(50)))) == {"token-2"}


async def test_a_late_rejection_of_an_old_access_changes_nothing() -> None:
    clock = Clock()
    source = Numbered(clock)
    held = credentials(source, clock)
    old = await held.current()
    held.rejected(old)
    await held.current()
    held.rejected(old)
    assert token(await held.current()) == "token-2"


async def test_they_are_renewed_before_they_expire() -> None:
    clock = Clock()
    held = credentials(Numbered(clock, life=100, leeway=10), clock)
    assert token(await held.current()) == "token-1"
    clock.pass_(89)
    assert token(await held.current()) == "token-1"
    clock.pass_(2)
    assert token(await held.current()) == "token-2"


async def test_others_go_on_with_the_old_ones_while_one_renews() -> None:
    clock = Clock()
    source = Numbered(clock, life=100, leeway=10)
    held = credentials(source, clock)
    await held.current()
    clock.pass_(95)
    source.gate.clear()
    renewing = asyncio.create_task(held.current())
    await asyncio.sleep(0)
    assert token(await held.current()) == "token-1"
    source.gate.set()
    assert token(await renewing) == "token-2"


async def test_expired_ones_are_waited_for() -> None:
    clock = Clock()
    source = Numbered(clock, life=100, leeway=10)
    held = credentials(source, clock)
    await held.current()
    clock.pass_(101)
    seen = await asyncio.gather(*(held.current() for _ in range(5)))
    assert {token(access) for access in seen} == {"token-2"}


async def test_a_failed_renewal_keeps_valid_ones_and_is_tried_again() -> None:
    clock = Clock()
    source = Numbered(clock, life=100, leeway=50)
    held = credentials(source, clock)
    await held.current()
    source.failing = True
    clock.pass_(60)
    assert token(await held.current()) == "token-1"
    source.failing = False
    clock.pass_(6)
    assert token(await held.current()) == "token-3"


async def test_a_failure_is_raised_and_not_repeated_for_a_while() -> None:
    clock = Clock()
    source = Numbered(clock)
    source.failing = True
    held = credentials(source, clock)
    for _ in range(10):
        with pytest.raises(CredentialsError, match="no luck"):
            await held.current()
    assert source.fetched == 1
    clock.pass_(6)
    source.failing = False
    assert token(await held.current()) == "token-2"


async def test_credentials_that_are_refused_again_and_again_are_taken_ever_more_rarely() -> None:
    clock = Clock()
    source = Numbered(clock)
    source.repeating = True
    held = credentials(source, clock)
    for _ in range(600):
        held.rejected(await held.current())
        clock.pass_(1)
    assert source.fetched <= 20


async def test_after_a_calm_time_a_rejection_is_acted_on_at_once() -> None:
    clock = Clock()
    source = Numbered(clock)
    held = credentials(source, clock)
    for number in range(1, 10):
        access = await held.current()
        assert token(access) == f"token-{number}"
        clock.pass_(120)
        held.rejected(access)


async def test_a_cancelled_request_does_not_stop_the_others() -> None:
    clock = Clock()
    source = Numbered(clock)
    source.gate.clear()
    held = credentials(source, clock)
    first, second = asyncio.create_task(held.current()), asyncio.create_task(held.current())
    await asyncio.sleep(0)
    first.cancel()
    source.gate.set()
    assert token(await second) == "token-2"


async def test_a_clock_set_back_does_not_keep_a_token_for_ever() -> None:
    clock = Clock()
    source = Numbered(clock, life=100)
    held = credentials(source, clock)
    await held.current()
    clock.pass_(-50_000)
    assert token(await held.current()) == "token-2"


def rotating(path: Path, clock: Clock) -> Credentials:
    return Credentials(FileSource(token_file=path, now=clock), AccessMaker(None), now=clock)


async def test_a_token_file_is_read_again_within_a_minute(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("old")
    held = rotating(path, clock)
    assert token(await held.current()) == "Bearer old"
    path.write_text("new")
    assert token(await held.current()) == "Bearer old"
    clock.pass_(REREAD_AFTER_SECONDS)
    assert token(await held.current()) == "Bearer new"
    assert REREAD_AFTER_SECONDS <= 60


async def test_a_rejected_token_is_read_again_at_once(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("old")
    held = rotating(path, clock)
    access = await held.current()
    path.write_text("new")
    held.rejected(access)
    assert token(await held.current()) == "Bearer new"


async def test_an_unchanged_token_file_gives_the_same_access(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("same")
    held = rotating(path, clock)
    access = await held.current()
    clock.pass_(3600)
    assert await held.current() is access


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_token_file_that_is_gone_or_empty_for_a_moment_does_no_harm(
    tmp_path: Path, content: str | None
) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("good")
    held = rotating(path, clock)
    await held.current()
    path.unlink()
    if content is not None:
        path.write_text(content)
    clock.pass_(REREAD_AFTER_SECONDS)
    assert token(await held.current()) == "Bearer good"


async def test_every_access_carries_the_headers_of_the_configuration() -> None:
    clock = Clock()
    headers = CIMultiDict({"Impersonate-User": "bob"})
    held = Credentials(Numbered(clock), AccessMaker(None, headers=headers), now=clock)
    assert (await held.current()).headers == {"Impersonate-User": "bob", "Authorization": "token-1"}
