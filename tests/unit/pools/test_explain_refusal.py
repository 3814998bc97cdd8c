"""Why a pod was not even created, from the sentence of whatever refused it."""

import pytest

from gpu_control_plane.kube.admission import AdmissionResponse
from gpu_control_plane.pools.explain.explanation import Cause
from gpu_control_plane.pools.explain.refusal import explain_refusal
from unit.admission.pod_cases import TRAINING, pod, pool, review

ACCESS = f"The pod asks for {TRAINING}, and the GPU pool training admits neither the namespace team-a, nor …"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("message", "cause", "words"),
    [
        (
            'pods "x" is forbidden: exceeded quota: gpu-pool-training, requested: requests.gpu.deckhouse.io/training=1',
            Cause.QUOTA,
            "`kubectl edit gpupool training`",
        ),
        (
            'pods "x" is forbidden: exceeded quota: ours, requested: pods=1, used: pods=4, limited: pods=4',
            Cause.QUOTA,
            "`kubectl edit resourcequota ours -n team-a`",
        ),
        (
            f"ValidatingAdmissionPolicy 'gpu-pool-access' with binding … denied request: {ACCESS}",
            Cause.NO_ACCESS,
            ACCESS,
        ),
        ('pods "x" is forbidden: violates PodSecurity', Cause.REFUSED, "violates PodSecurity"),
    ],
    ids=["quota of a pool", "another quota", "access", "something else"],
)
def test_what_refused_a_pod_is_told_by_its_cause(message: str, cause: Cause, words: str) -> None:
    found = explain_refusal(message, "team-a")
    assert found.cause is cause
    assert words in found.note


@pytest.mark.parametrize(
    ("refused", "cause"),
    [
        (review(pod({"gpu.deckhouse.io/other": "1"})), Cause.NO_SUCH_POOL),
        (review(pod({TRAINING: "1"}), pool(metadata=DELETED)), Cause.POOL_DELETED),
        (review(pod({TRAINING: "1"}), pool(status={"phase": "Maintenance"})), Cause.MAINTENANCE),
        (review(pod({TRAINING: "16"}), pool()), Cause.TOO_MANY),
    ],
    ids=["no pool", "deleted", "maintenance", "too many"],
)
def test_what_our_webhook_refuses_is_told_by_its_cause(refused: AdmissionResponse, cause: Cause) -> None:
    assert not refused.allowed
    found = explain_refusal(f'admission webhook "x" denied the request: {refused.message}', "team-a")
    assert (found.cause, found.sentence) == (cause, refused.message.rstrip("."))


@pytest.mark.parametrize("name", ["gpu-pool-x$(reboot)", "gpu-pool-x;reboot", "x`reboot`", "gpu-pool-\x1b[2Jx"])
def test_what_a_tenant_writes_into_an_event_becomes_no_command(name: str) -> None:
    found = explain_refusal(f"exceeded quota: {name}, requested: requests.{TRAINING}=1", "team-a")
    assert found.cause is Cause.REFUSED
    assert not found.admin
    assert found.sentence.isprintable()
