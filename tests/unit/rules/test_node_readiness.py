"""Whether a status rests on the agent's latest report, by numbers. That such a status says what the report says is
tested with inventory, which writes it (unit/inventory/test_histories.py)."""

import msgspec
import pytest

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.examples import device, node_state
from gpu_control_plane.api.gpunodestate import NodeStateStatus, ObservedReport
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.rules.node_readiness import is_report_observed

STATUS = node_state(cards=2).status


def report(generation: int, uid: str = "first") -> NodeFeature:
    return NodeFeature(metadata=ObjectMeta(uid=uid, generation=generation))


def status(generation: int | None, uid: str = "first") -> NodeStateStatus:
    """A status that rests on this version of the report."""
    observed = ObservedReport(uid=uid, generation=generation) if generation is not None else None
    return msgspec.structs.replace(STATUS, observed_report=observed)


@pytest.mark.parametrize(
    ("held", "latest", "observed"),
    [
        (status(3), report(3), True),
        (status(2), report(3), False),
        (status(4), report(3), True),
        (status(3), report(3, "second"), False),
        (status(3), report(1, "second"), False),
        (status(None), report(1), False),
        (status(None), None, True),
        (status(3), None, False),
    ],
    ids=[
        "the same",
        "the agent has reported since",
        "our cache of reports lags",
        "deleted and created again",
        "deleted and created again, with a lower number",
        "written before there was a report, or by an older release",
        "no report",
        "the report is gone",
    ],
)
def test_a_status_rests_on_the_latest_report_by_uid_and_generation(
    held: NodeStateStatus, latest: NodeFeature | None, observed: bool
) -> None:
    assert is_report_observed(held, latest, lambda _name: None) is observed


def card(name: str, ignore: str | None) -> GPUDevice:
    made = device(index=0)
    labels = {Label.IGNORE.value: ignore} if ignore is not None else {}
    return msgspec.structs.replace(made, metadata=ObjectMeta(name=name, labels=labels))


@pytest.mark.parametrize(
    ("counted_as_ignored", "label", "observed"),
    [(True, "true", True), (True, None, False), (True, "false", False), (False, None, True), (False, "true", True)],
    ids=["ignored", "no longer ignored", "explicitly not ignored", "in service", "ignored a moment ago"],
)
def test_a_card_that_the_status_counts_as_ignored_must_still_be(
    counted_as_ignored: bool, label: str | None, observed: bool
) -> None:
    """The driver may have lost it: without the label the inventory is not complete. Labels have no generation."""
    first, second = STATUS.devices
    held = msgspec.structs.replace(
        status(3), devices=(msgspec.structs.replace(first, ignored=counted_as_ignored), second)
    )
    known = {first.inventory_id: card(first.inventory_id, label)}
    assert is_report_observed(held, report(3), known.get) is observed


def test_an_ignored_card_whose_object_is_gone_is_not_ignored() -> None:
    held = msgspec.structs.replace(
        status(3), devices=tuple(msgspec.structs.replace(one, ignored=True) for one in STATUS.devices)
    )
    assert not is_report_observed(held, report(3), lambda _name: None)
