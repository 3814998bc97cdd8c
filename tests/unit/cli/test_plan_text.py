"""What people read of plans and previews, letter by letter."""

import io

import pytest

from gpu_control_plane.actions.approvals import plan_approve, plan_reassign
from gpu_control_plane.actions.card_service import plan_retire
from gpu_control_plane.actions.carry_out import Outcome
from gpu_control_plane.actions.preview import preview_pool
from gpu_control_plane.api.access import Access, Quota
from gpu_control_plane.api.allocation import Mode, PoolAllocation, TimeSlice
from gpu_control_plane.api.deviceselector import DeviceSelector
from gpu_control_plane.api.gpupool import PoolAssignment
from gpu_control_plane.cli.plan_text import show_outcomes, show_plan
from gpu_control_plane.cli.preview import show_preview
from gpu_control_plane.cli.screen import Screen
from gpu_control_plane.views.fleet import Fleet
from unit.actions.fleets import fleet_of
from unit.actions.test_plans import names, settled
from unit.pools.test_decide import pool

WIDEST = 80


def in_use() -> Fleet:
    made = settled(pool("training"), pool("inference"), cards=2, approved="training")
    made.start_pod(min(made.devices))
    return fleet_of(made)


def test_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    limited = pool("training", device_selector=DeviceSelector(max_devices_per_node=2))
    fleet = fleet_of(settled(limited, cards=3))
    shown = io.StringIO()
    show_plan(Screen(shown), plan_approve(fleet, names(fleet), "training"), {})
    assert shown.getvalue() == (
        "Dry run: nothing is written.\n"
        "✓ worker-3-0000-18-00-0  NVIDIA H200  - → training\n"
        "✓ worker-3-0000-2a-00-0  NVIDIA H200  - → training\n"
        "training: units 0 → 2 (gpu.deckhouse.io/training)\n"
        "For real: kubectl gpu approve worker-3-0000-18-00-0 worker-3-0000-2a-00-0 worker-3-0000-3a-00-0"
        " --pool training\n"
    )
    assert capsys.readouterr().err == (
        "✗ worker-3-0000-3a-00-0: the pool training takes no more cards of worker-3 (maxDevicesPerNode: 2)\n"
    )


def test_what_became_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = in_use()
    plan = plan_reassign(fleet, names(fleet), "inference")
    first, second = names(fleet)
    outcomes = [Outcome(name=first, done=True), Outcome(name=second, done=False, sentence="it has been changed")]
    shown = io.StringIO()
    show_outcomes(Screen(shown), plan, {}, outcomes)
    assert shown.getvalue() == (
        "! worker-3-0000-18-00-0  NVIDIA H200  training → inference when default/pod-0 has ended\n"
    )
    assert capsys.readouterr().err == "✗ worker-3-0000-2a-00-0: it has been changed\n"


def test_what_is_done_already_says_how_far_it_is() -> None:
    fleet = in_use()
    first, _ = names(fleet)
    plan = plan_approve(fleet, [first], "training")
    shown = io.StringIO()
    show_plan(Screen(shown), plan, {first: "in the pool training"})
    assert shown.getvalue() == "○ worker-3-0000-18-00-0: nothing to do; in the pool training\n"


def test_retiring_says_who_holds_the_card() -> None:
    fleet = in_use()
    shown = io.StringIO()
    show_plan(Screen(shown), plan_retire(fleet, names(fleet)[:1]), {})
    assert shown.getvalue().splitlines()[1] == (
        "! worker-3-0000-18-00-0  NVIDIA H200  training → - when default/pod-0 has ended:"
        " the ignore label takes the card out of service"
    )


def test_a_preview() -> None:
    changed = pool(
        "training",
        allocation=PoolAllocation(mode=Mode.TIME_SLICE, time_slice=TimeSlice(replicas=3)),
        quotas=(Quota(namespace="default", units=0),),
        access=Access(namespaces=("team-a",)),
    )
    shown = io.StringIO()
    show_preview(Screen(shown), preview_pool(in_use(), changed))
    assert shown.getvalue() == (
        "Pool training would be changed\n"
        "  training: units 2 → 6 (gpu.deckhouse.io/training)\n"
        "! maintenance: Exclusive → TimeSlice 3, strategy Pool; no new pod gets a card until it is done\n"
        "    waits for default/pod-0  worker-3-0000-18-00-0  1 in use\n"
        "! quota of default for gpu.deckhouse.io/training: no limit → 0, holds 1: these go on, new ones are refused\n"
        "  access + namespace team-a\n"
    )


def test_a_preview_of_a_new_pool_says_how_to_go_on() -> None:
    fleet = fleet_of(settled(cards=2))
    shown = io.StringIO()
    show_preview(Screen(shown), preview_pool(fleet, pool("a")))
    assert shown.getvalue() == (
        "Pool a would be created\n"
        "  selected and not in it: 2 AwaitingApproval\n"
        "  to approve them: kubectl gpu approve --pool a --all-pending\n"
        "! spec.access names nobody: only the RBAC verb use lets pods in\n"
        "  no card joins or leaves it by itself, and no limit and no right changes\n"
    )


def test_cards_fit_into_eighty_columns() -> None:
    fleet = fleet_of(settled(cards=8))
    shown = io.StringIO()
    show_preview(
        Screen(shown),
        preview_pool(
            fleet, pool("a", assignment=PoolAssignment(require_annotation=False), access=Access(users=("x",)))
        ),
    )
    lines = shown.getvalue().splitlines()
    assert lines[1:3] == [
        "✓ worker-3-0000-18-00-0  NVIDIA H200  - → a",
        "✓ worker-3-0000-2a-00-0  NVIDIA H200  - → a",
    ]
    assert max(map(len, lines)) <= WIDEST
