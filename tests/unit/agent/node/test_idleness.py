"""A card is tested only while nobody needs it, and nobody gets one that was not tested."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from gpu_control_plane.agent.burnin.decide import Standing, begun, waiting
from gpu_control_plane.agent.node.books import Books
from gpu_control_plane.agent.node.idleness import obstacle, passed, withheld
from gpu_control_plane.agent.node.moment import Moment
from gpu_control_plane.agent.node.views import LocalNode, NodeState
from gpu_control_plane.agent.node.wishes import known
from gpu_control_plane.agent.units import Unit
from gpu_control_plane.agent.views import Card
from gpu_control_plane.api.gpudevice import BurnIn
from gpu_control_plane.api.gpunodestate import Assignment, NodeStateSpec, StepResult, Validation, ValidationStep
from gpu_control_plane.api.names import Label, Reason
from gpu_control_plane.kube.objects import ObjectMeta
from unit.agent.node.scenes import NODE, device, exclusive, first, picture, uuid_of

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
PICTURE = picture()
SEEN = first(PICTURE)
CARD = device(SEEN)
IGNORED = replace(CARD, metadata=replace(CARD.metadata, labels={str(Label.IGNORE): "true"}))
UNIT = Unit("nvidia.com/gpu", uuid_of(SEEN), SEEN.id)


def moment(card: Card, *orders: Assignment, held: bool = False) -> Moment:
    state = NodeState(metadata=ObjectMeta(name=NODE), spec=NodeStateSpec(assignments=orders))
    return Moment(
        node=LocalNode(metadata=ObjectMeta(name=NODE)),
        state=state,
        picture=PICTURE,
        cards=known(PICTURE, [card]),
        books=Books(holders={}, users={}),
        held={UNIT: "default/pod"} if held else {},
        allocatable={},
        busy=False,
    )


@pytest.mark.parametrize(
    ("now", "flags", "said"),
    [
        (moment(CARD), {}, None),
        (moment(CARD), {"healthy": False}, "has a fault"),
        (moment(CARD), {"checked": False}, "checks of the node's driver"),
        (moment(CARD), {"offered": {SEEN.id}}, "offered to pods"),
        (moment(CARD, held=True), {}, "in use by one"),
        (moment(CARD, exclusive(SEEN.id)), {}, "in a pool"),
        (moment(IGNORED), {}, "out of service"),
        (moment(device(SEEN, "GPU-other")), {}, "not known to the cluster yet"),
    ],
    ids=["free", "ill", "unchecked", "offered", "in use", "ordered", "ignored", "another card"],
)
def test_only_a_free_card_is_tested(now: Moment, flags: dict[str, object], said: str | None) -> None:
    given = {"offered": set(), "healthy": True, "checked": True, **flags}
    found = obstacle(now, SEEN, **given)  # type: ignore[arg-type]
    assert (found is None) if said is None else (found is not None and said in found)


def test_a_card_in_mig_mode_is_not_tested() -> None:
    assert SEEN.hardware.mig is not None
    cut = replace(SEEN, hardware=replace(SEEN.hardware, mig=replace(SEEN.hardware.mig, enabled=True)))
    found = obstacle(moment(CARD), cut, offered=set(), healthy=True, checked=True)
    assert found is not None
    assert "MIG mode" in found


@pytest.mark.parametrize(
    ("results", "well"),
    [
        ({"driver": StepResult.PASSED, "cuda": StepResult.PASSED}, True),
        ({"driver": StepResult.PASSED, "toolkit": StepResult.FAILED}, True),
        ({"driver": StepResult.FAILED}, False),
        ({"driver": StepResult.PASSED, "cuda": StepResult.FAILED}, False),
    ],
)
def test_a_driver_that_does_not_work_is_not_held_against_cards(results: dict[str, StepResult], well: bool) -> None:
    steps = tuple(ValidationStep(name=name, result=result, at=NOW) for name, result in results.items())
    assert passed(Validation(steps=steps)) is well
    assert not passed(None)


PASSED = Standing(status=True, reason=Reason.BURN_IN_PASSED, message="", record=BurnIn(uuid="GPU-1"))
FAILED = replace(PASSED, status=False, reason=Reason.TOO_HOT)


@pytest.mark.parametrize(
    ("standing", "kept", "kept_though_ordered"),
    [
        (None, False, False),
        (PASSED, False, False),
        (FAILED, True, False),
        (waiting("GPU-1", "why"), True, False),
        (begun("GPU-1", "when"), True, True),
    ],
    ids=["off", "passed", "failed", "waits", "under test"],
)
def test_nobody_gets_a_card_before_its_test(standing: Standing | None, kept: bool, kept_though_ordered: bool) -> None:
    found = {SEEN.id: standing}
    assert bool(withheld(found, ())) is kept
    assert bool(withheld(found, (exclusive(SEEN.id),))) is kept_though_ordered
