"""What `helm test` says: a line for each question, and what to do where something is wrong."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from fault_proxy import plain_config
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.doctor.examination import examine
from gpu_control_plane.doctor.release_test import QUESTIONS, TEST_CHECKS, answers_of, webhook_answer
from gpu_control_plane.doctor.snapshot import Source
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.admission import allow, encode_review, parse_review
from unit.doctor.clusters import Spoil, changed, healthy, removed, snapshot


def lines(*spoils: Spoil, unread: Source | None = None) -> list[str]:
    cluster = healthy()
    for spoil in spoils:
        spoil(cluster)
    held = snapshot(cluster)
    if unread is not None:
        held = msgspec.structs.replace(held, unread={unread: "you may not read them"})
    return [line for answer in answers_of(examine(held, TEST_CHECKS)) for line in answer.lines()]


def no_cards(cluster: dict[str, list[dict[str, object]]]) -> None:
    for source in (Source.NODES, Source.STATES, Source.PODS):
        cluster[source].clear()


def test_a_healthy_release_gets_one_line_for_each_question() -> None:
    assert lines() == [f"✓ {question.statement}" for question in QUESTIONS]


def test_every_question_is_asked_by_checks_that_exist() -> None:
    assert {name for question in QUESTIONS for name in question.checks} == {check.id for check in TEST_CHECKS}


def test_what_is_wrong_says_what_to_do() -> None:
    said = lines(removed(Source.LEASES), removed(Source.POLICIES))
    assert "✓ A controller leads." not in said
    wrong = [line for line in said if line.startswith("✗")]
    assert any("No controller leads" in line for line in wrong)
    assert any("ValidatingAdmissionPolicy" in line for line in wrong)
    assert [said[said.index(line) + 1].split()[0] for line in wrong] == ["fix:"] * len(wrong)


def test_an_agent_that_only_starts_is_waited_for() -> None:
    starting = {"status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}}
    assert "✗ pod agent-0: The agent is not ready yet." in lines(changed(Source.PODS, starting, 1))


def test_a_cluster_without_cards_is_no_fault() -> None:
    said = lines(no_cards)
    assert not [line for line in said if line.startswith("✗")]
    assert any(line.startswith("! 0 nodes: No Node has a label") for line in said)


def test_what_may_not_be_read_is_not_taken_to_be_fine() -> None:
    assert "✗ This could not be checked, since you may not read them." in lines(unread=Source.LEASES)


def reviewed(body: bytes) -> web.Response:
    """As our webhook answers, by its own code."""
    return web.Response(body=encode_review(parse_review(body, GPUPool), allow()))


@asynccontextmanager
async def api_server(answer: Callable[[bytes], web.Response]) -> AsyncIterator[Client]:
    """One that passes questions on to a webhook behind its Service."""

    async def handle(request: web.Request) -> web.Response:
        return answer(await request.read())

    app = web.Application()
    path = "/api/v1/namespaces/gpus/services/https:gpu-control-plane-webhook:webhook/proxy/validate-gpupool"
    app.router.add_post(path, handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with Client(plain_config(f"http://127.0.0.1:{runner.addresses[0][1]}")) as client:
            yield client
    finally:
        await runner.cleanup()


async def test_a_webhook_that_answers_is_fine() -> None:
    async with api_server(reviewed) as client:
        answer = await webhook_answer(client, "gpus")
    assert list(answer.lines()) == ["✓ The webhook answers when the API server asks it."]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (lambda _: web.json_response({"message": "no endpoints available"}, status=400), "no endpoints available"),
        (lambda _: web.Response(text="<html>"), "is no webhook of ours"),
        (lambda _: web.json_response({"response": {"uid": "another"}}), "is no webhook of ours"),
    ],
    ids=["refused", "no-json", "another-question"],
)
async def test_a_webhook_that_does_not_answer_says_what_to_do(
    given: Callable[[bytes], web.Response], sentence: str
) -> None:
    async with api_server(given) as client:
        wrong, fix = (await webhook_answer(client, "gpus")).lines()
    assert sentence in wrong
    assert fix.startswith("    fix: kubectl -n gpus logs")
