"""What `helm test` runs: whether an installation works, by the doctor's own checks and one question to the webhook.

A release that was just installed is given time: the questions are asked again until nothing is wrong or the time is
over. Each gets one line; what fails says what to do.

Run as `python -m gpu_control_plane.doctor.release_test`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.pod import AGENT
from gpu_control_plane.doctor.check import Check, Found, Group, check
from gpu_control_plane.doctor.checks import CHECKS
from gpu_control_plane.doctor.cluster import examine_cluster
from gpu_control_plane.doctor.examination import Examination
from gpu_control_plane.doctor.findings import Evidence, Severity, reference
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.installation.one_shot import run_in_cluster
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, KubeError
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS

_PAUSE_SECONDS: Final = 5.0
_REVIEW_UID: Final = "helm-test"
_EXAMPLES: Final = """\b
Examples:
  helm test gpu -n d8-gpu-operator                           in a pod, with rights of its own
  python -m gpu_control_plane.doctor.release_test            with $KUBECONFIG
  python -m gpu_control_plane.doctor.release_test --no-ask-webhook --timeout 0

\b
Exit codes: 0 everything works; 1 something does not, or could not be found out; 2 wrong usage.
"""


@check("agent-starting", "An agent is not ready yet", Group.NODES, Severity.WARNING, Source.PODS)
def agent_starting(snapshot: Snapshot) -> Iterator[Found]:
    """The doctor leaves agents that start alone; an installation is not done before they are ready."""
    for pod in snapshot.pods:
        if pod.component == AGENT and pod.active and not (pod.ready or pod.trouble or pod.crashing):
            yield Found(
                about=f"pod {pod.name}",
                sentence="The agent is not ready yet.",
                evidence=Evidence(reference(pod), "status.conditions[Ready]", "False"),
                fix=f"kubectl -n {snapshot.namespace} describe pod {pod.name}",
            )


class Question(msgspec.Struct, frozen=True):
    """One line of the test: what holds if none of its checks finds anything."""

    statement: str
    checks: tuple[str, ...]


QUESTIONS: Final = (
    Question("The API server serves our kinds.", ("crd-missing", "crd-version")),
    Question("A controller leads.", ("controller-missing", "controller-unavailable", "controller-no-leader")),
    Question(
        "Pools are guarded: the admission policies are bound, and their index is there.",
        ("policy-missing", "policy-not-enforced", "access-index-missing", "access-index-stale"),
    ),
    Question(
        "The API server trusts the webhook, and pods stand behind it.",
        ("webhook-missing", "webhook-untrusted", "webhook-unreachable"),
    ),
    Question("Our other programs run.", ("program-not-running",)),
    Question(
        "Every node with a card has an agent that is ready.",
        ("no-gpu-node", "agent-refused", "agent-missing", "agent-not-ready", agent_starting.id),
    ),
)
_ASKED: Final = frozenset(each for question in QUESTIONS for each in question.checks)
TEST_CHECKS: Final[tuple[Check, ...]] = tuple(each for each in (*CHECKS, agent_starting) if each.id in _ASKED)


class Answer(msgspec.Struct, frozen=True):
    """What became of a question: sentences of what is wrong, each with a command that helps, and of what to know."""

    statement: str
    faults: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()

    def lines(self) -> Iterator[str]:
        if not self.faults:
            yield f"✓ {self.statement}"
        for symbol, told in (("✗", self.faults), ("!", self.notes)):
            for sentence, fix in told:
                yield f"{symbol} {sentence}"
                yield f"    fix: {fix}"


@click.command("release-test", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where our programs run.")
@click.option("--ask-webhook/--no-ask-webhook", default=True, help="Have the API server pass a question on to it.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds that what starts is waited for.",
)
def command(*, kubeconfig: Path | None, namespace: str, ask_webhook: bool, timeout: float) -> None:
    """Say whether this installation works, a line for each thing that has to be so. Nothing is changed."""
    try:
        answers = run_in_cluster(
            kubeconfig, lambda client: answers_within(client, namespace, timeout, ask_webhook=ask_webhook)
        )
    except KubeError as error:
        click.echo(f"✗ {error}", err=True)
        sys.exit(1)
    for line in (line for answer in answers for line in answer.lines()):
        click.echo(line)
    sys.exit(1 if any(answer.faults for answer in answers) else 0)


async def answers_within(
    client: Client,
    namespace: str,
    seconds: float,
    *,
    ask_webhook: bool,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> list[Answer]:
    """The answers once nothing is wrong any more, or when the time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        examined = await examine_cluster(client, namespace, TEST_CHECKS, sleep=sleep)
        answers = answers_of(examined.examination)
        if ask_webhook:
            answers.append(await webhook_answer(client, namespace))
        if loop.time() >= end or not any(answer.faults for answer in answers):
            return answers
        await sleep(_PAUSE_SECONDS)


def answers_of(found: Examination, questions: Sequence[Question] = QUESTIONS) -> list[Answer]:
    """The doctor's findings, by question. What could not be checked is a fault: it is not known to be fine."""
    return [
        Answer(
            question.statement,
            faults=(
                *_told(found, question, lambda severity: severity is not Severity.INFO),
                *_unknown(found, question.checks),
            ),
            notes=tuple(_told(found, question, lambda severity: severity is Severity.INFO)),
        )
        for question in questions
    ]


def _told(found: Examination, question: Question, counts: Callable[[Severity], bool]) -> Iterator[tuple[str, str]]:
    for finding in found.findings:
        if finding.check in question.checks and counts(finding.severity):
            yield f"{finding.about}: {finding.sentence}", finding.fix


def _unknown(found: Examination, checks: Iterable[str]) -> Iterator[tuple[str, str]]:
    reasons = dict.fromkeys(each.why for each in found.not_made if each.check in checks)
    for why in reasons:
        yield f"This could not be checked, since {why}.", "kubectl gpu doctor"


async def webhook_answer(client: Client, namespace: str) -> Answer:
    """The API server passes the question on to a pod behind the Service, over the network it calls webhooks by."""
    statement = "The webhook answers when the API server asks it."
    path = f"/api/v1/namespaces/{namespace}/services/https:{WEBHOOKS}:webhook/proxy/validate-gpupool"
    call = Call(method="POST", path=path, verb="create", resource="services/proxy", body=msgspec.json.encode(_review()))
    fix = f"kubectl -n {namespace} logs -l app.kubernetes.io/component=controller --tail=50"
    try:
        answer = await client.transport.send(call)
    except ApiError as error:
        sentence = f"The webhook does not answer the API server: {error} Pods and pools are admitted without advice."
        return Answer(statement, faults=((sentence, fix),))
    if _answered_uid(answer) != _REVIEW_UID:
        return Answer(statement, faults=((f"What answers behind the Service {WEBHOOKS} is no webhook of ours.", fix),))
    return Answer(statement)


def _review() -> dict[str, Any]:
    """A GPUPool that would be created in a dry run."""
    kind = GPUPool.resource
    version = {"group": kind.group, "version": kind.version}
    pool = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": _REVIEW_UID}}
    request = {
        "uid": _REVIEW_UID,
        "kind": {**version, "kind": kind.kind},
        "resource": {**version, "resource": kind.plural},
        "name": _REVIEW_UID,
        "operation": "CREATE",
        "userInfo": {"username": "helm-test"},
        "object": {**pool, "spec": {}},
        "dryRun": True,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class _Response(msgspec.Struct, frozen=True):
    uid: str = ""


class _Reviewed(msgspec.Struct, frozen=True):
    response: _Response = _Response()


def _answered_uid(answer: bytes) -> str:
    try:
        return msgspec.json.decode(answer, type=_Reviewed).response.uid
    except msgspec.DecodeError:
        return ""


if __name__ == "__main__":
    command()
