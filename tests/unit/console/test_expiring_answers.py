import asyncio

import pytest

from gpu_control_plane.console.expiring_answers import ExpiringAnswers
from unit.console.test_sessions import Clock


class Asked:
    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.count = 0

    async def __call__(self) -> bool:
        self.count += 1
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _holds(answer: bool) -> float:
    return 60 if answer else 5


async def test_an_answer_holds_for_its_time() -> None:
    clock, asked = Clock(), Asked(True, False, True)
    answers: ExpiringAnswers[str, bool] = ExpiringAnswers(most=10, now=clock)
    assert await answers.get("a", asked, _holds)
    clock.now += 59
    assert await answers.get("a", asked, _holds)
    assert asked.count == 1
    clock.now += 2
    assert not await answers.get("a", asked, _holds)
    clock.now += 6
    assert await answers.get("a", asked, _holds)
    assert asked.count == 3


async def test_many_who_want_the_same_answer_ask_once() -> None:
    answers: ExpiringAnswers[str, bool] = ExpiringAnswers(most=10, now=Clock())
    asked = Asked(True)
    assert all(await asyncio.gather(*(answers.get("a", asked, _holds) for _ in range(50))))
    assert asked.count == 1


async def test_no_answer_is_not_remembered() -> None:
    answers: ExpiringAnswers[str, bool] = ExpiringAnswers(most=10, now=Clock())
    asked = Asked(OSError("away"), True)
    with pytest.raises(OSError, match="away"):
        await answers.get("a", asked, _holds)
    assert await answers.get("a", asked, _holds)


async def test_who_asked_first_may_leave() -> None:
    answers: ExpiringAnswers[str, bool] = ExpiringAnswers(most=10, now=Clock())
    asked = Asked(True)
    first = asyncio.create_task(answers.get("a", asked, _holds))
    await asyncio.sleep(0)
    second = asyncio.create_task(answers.get("a", asked, _holds))
    await asyncio.sleep(0)
    first.cancel()
    assert await second
    assert asked.count == 1


async def test_the_number_of_answers_is_bounded() -> None:
    answers: ExpiringAnswers[int, bool] = ExpiringAnswers(most=10, now=Clock())
    for number in range(100):
        await answers.get(number, Asked(True), _holds)
    assert len(answers) == 10
