"""Who approves a card is recorded, and told of mistakes."""

import msgspec
import pytest

from gpu_control_plane.admission.approvals import review_approval
from gpu_control_plane.api.examples import device
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.kube.admission import AdmissionResponse
from gpu_control_plane.kube.json_patch import Json
from unit.admission.pod_cases import pool

SELECTS_OTHERS = {"deviceSelector": {"include": {"products": ["*A100*"]}}}


def card(approval: str | None) -> GPUDevice:
    made = device(pool=None)
    annotations = {Annotation.ASSIGNMENT.value: approval} if approval else {}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))


def review(before: str | None, after: str | None, pool: GPUPool | None, user: str = "alice") -> AdmissionResponse:
    card_after = card(after)
    document: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(card_after))
    return review_approval(card(before), card_after, document, user, pool=pool, node_labels={})


def signed(response: AdmissionResponse) -> object:
    document = msgspec.to_builtins(response.document)
    return document["metadata"]["annotations"][Annotation.APPROVED_BY] if document else None


@pytest.mark.parametrize(
    ("before", "after", "who"),
    [(None, "training", "alice"), ("training", "serving", "alice"), ("training", None, "alice"), ("a", "a", None)],
    ids=["approved", "for another pool", "withdrawn", "something else changes"],
)
def test_who_changes_an_approval_is_recorded(before: str | None, after: str | None, who: str | None) -> None:
    assert signed(review(before, after, pool("training"))) == who


@pytest.mark.parametrize(
    ("approved", "warnings"),
    [
        (pool("training"), ()),
        (None, ("there is no GPU pool training: the card joins it once it exists (kubectl get gpupools)",)),
        (
            pool("training", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}),
            ("the GPU pool training is being deleted and takes no cards",),
        ),
        (
            pool("training", spec=SELECTS_OTHERS),
            ("the GPU pool training does not select this card, which stays out: see its spec.deviceSelector",),
        ),
    ],
    ids=["fine", "no such pool", "a pool that goes", "not selected"],
)
def test_an_approval_that_leads_nowhere_is_warned_about(approved: GPUPool | None, warnings: tuple[str, ...]) -> None:
    response = review(None, "training", approved)
    assert (response.allowed, response.warnings) == (True, warnings)


def test_withdrawing_an_approval_needs_no_pool() -> None:
    assert review("gone", None, None).warnings == ()
