"""Tables as people see them, at 80 and at 200 columns, letter by letter."""

import io
from datetime import timedelta

import pytest

from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.cli import devices, nodes, output, pods, pools
from gpu_control_plane.cli.output import Column, Table
from gpu_control_plane.cli.top import top_lines
from gpu_control_plane.views.cards import card_rows
from gpu_control_plane.views.nodes import node_rows
from gpu_control_plane.views.pods import pod_rows
from gpu_control_plane.views.pools import Tenant, pool_rows
from gpu_control_plane.views.top import node_loads
from unit.views.builders import NOW, card, fleet, node, pool, state, waiting_pod

CARDS = (
    card(slot=0x18, pods=("team-a/train-0", "team-a/train-1"), utilisation=98),
    card(slot=0x2A, pods=("team-b/notebook-of-a-long-name-0",), utilisation=0),
    card(slot=0x3A),
    card("h200-2", 0x18, state=DeviceState.FAULTED),
    card("h200-2", 0x2A, state=DeviceState.UNASSIGNED, pool=None, pending="AwaitingApproval"),
)
FLEET = fleet(
    *CARDS,
    pool(total=64, used=56, available=6, faulted=2),
    pool("inference", total=4, available=4),
    state("h200-1", used=6, free=2),
    state("h200-2", ready="False", reason="DriverNotReady"),
    node("h200-1"),
    node("h200-2"),
    waiting_pod("train-7", units=4),
)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages are those of a person who looks three hours later."""
    seen = NOW + timedelta(hours=3)
    for module in (devices, nodes, pods, pools):
        monkeypatch.setattr(module, "datetime", type("Clock", (), {"now": staticmethod(lambda _zone: seen)}))


def shown(text: str) -> str:
    return "\n" + text


def test_cards_at_80_columns() -> None:
    assert (
        shown(devices.card_table().text(card_rows(CARDS), width=80))
        == """
NAME                 MODEL  STATE       POOL      LOAD
h200-1-0000-18-00-0  H200   Assigned    training  Computing
h200-1-0000-2a-00-0  H200   Assigned    training  HeldIdle
h200-1-0000-3a-00-0  H200   Assigned    training  Free
h200-2-0000-18-00-0  H200   Faulted     training  OutOfService
h200-2-0000-2a-00-0  H200   Unassigned  -         AwaitingApproval
"""
    )


def test_cards_at_200_columns() -> None:
    assert (
        shown(devices.card_table().text(card_rows(CARDS), width=200))
        == """
NAME                 MODEL  STATE       POOL      LOAD              USED BY
h200-1-0000-18-00-0  H200   Assigned    training  Computing         team-a/train-0 +1
h200-1-0000-2a-00-0  H200   Assigned    training  HeldIdle          team-b/notebook-of-a-long-name-0
h200-1-0000-3a-00-0  H200   Assigned    training  Free              -
h200-2-0000-18-00-0  H200   Faulted     training  OutOfService      -
h200-2-0000-2a-00-0  H200   Unassigned  -         AwaitingApproval  -
"""
    )


def test_pending_cards_say_why_as_far_as_there_is_room() -> None:
    pending = card_rows(CARDS[-1:])
    assert (
        shown(devices.pending_table().text(pending, width=80))
        == """
NAME                 REASON            AGE  WHY
h200-2-0000-2a-00-0  AwaitingApproval  3h   a pool selects the card and a perso…
"""
    )
    assert (
        shown(devices.pending_table().text(pending, width=200))
        == """
NAME                 MODEL  REASON            AGE  WHY
h200-2-0000-2a-00-0  H200   AwaitingApproval  3h   a pool selects the card and a person has to approve it
"""
    )


def test_nodes() -> None:
    assert (
        shown(nodes.node_table().text(node_rows(FLEET), width=80))
        == """
NAME    STATE           CARDS  USED  FREE  PENDING  MODEL  DRIVER
h200-1  Ready           8      6     2     0        H200   580.159.04
h200-2  DriverNotReady  8      0     0     0        H200   580.159.04
TOTAL                   16     6     2     0
"""
    )


def test_pools_with_what_a_namespace_gets() -> None:
    rows = pool_rows(FLEET, Tenant(namespace="team-a"), loads=False)
    assert (
        shown(pools.pool_table(for_a_namespace=True).text(rows, width=80))
        == """
NAME       PHASE  MODE       TOTAL  USED  FREE  FAULTED  YOU GET
inference  Ready  Exclusive  4      0     4     0        4
training   Ready  Exclusive  64     56    6     2        6
TOTAL                        68     56    10    2        10
"""
    )


def test_pods_that_hold_and_pods_that_wait() -> None:
    rows = pod_rows(FLEET)
    assert (
        shown(pods.pod_table(everywhere=True).text(rows, width=200))
        == """
NAMESPACE  NAME                       UNITS  POOL      STATUS  WHAT                  NODE
team-a     train-0                    1      training  Holds   Computing             h200-1
team-a     train-1                    1      training  Holds   Computing             h200-1
team-b     notebook-of-a-long-name-0  1      training  Holds   HeldIdle 3h           h200-1
team-a     train-7                    4      training  Waits   TooManyForOneNode 3h  -
"""
    )


def test_top_gives_way_with_the_height_of_the_terminal() -> None:
    loads, at = node_loads(FLEET), NOW + timedelta(hours=3)
    high = top_lines(loads, width=80, height=24, now=at)
    assert (
        "\n".join(["", *high, ""])
        == """
2/5 held, 1 idle, 1 free   15:00:00
▇ computing  ▁ held idle  ▒ held, not measured  · free  ✕ out of service

h200-1  ▇▁·   2/3    71 °C  1.3 kW
  2a:00    0 %  107/141 GiB  team-b/notebook-of-a-long-name-0  idle 3h
h200-2  ✕✕    0/2
  18:00  faulted: no reason is known
"""
    )
    assert top_lines(loads, width=80, height=5, now=at) == [*high[:4], high[5]]
    assert top_lines(loads, width=80, height=4, now=at)[-1] == "and 2 more nodes: --pool or -n shows fewer"


def test_names_are_never_cut_and_wide_shows_every_column() -> None:
    table = devices.card_table()
    assert "h200-1-0000-18-00-0" in table.text(card_rows(CARDS), width=20)
    assert all(title in table.text(card_rows(CARDS), wide=True, width=80) for title in ("UUID", "USED BY", "AGE"))


def test_programs_read_values_and_people_read_text() -> None:
    table: Table[int] = Table(
        columns=[
            Column(title="NAME", value=str),
            Column(title="HALF OF", value=lambda row: row / 2, text=lambda _row: "some"),
        ],
        name=lambda row: f"number/{row}",
    )
    stream = io.StringIO()
    table.show([4, 6], "csv", stream=stream)
    assert stream.getvalue() == "name,half_of\n4,2.0\n6,3.0\n"
    assert table.text([4]) == "NAME  HALF OF\n4     some\n"


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d")])
def test_an_age_has_one_unit(seconds: int, text: str) -> None:
    assert output.age(NOW - timedelta(seconds=seconds), NOW) == text
    assert output.age(None, NOW) == "-"
