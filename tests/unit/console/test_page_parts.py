"""What pages are made of: lists, plots, drawings and the samples behind them."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from starlette.requests import Request

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.console.capacity_history import CapacityHistory, CapacitySample
from gpu_control_plane.console.frame import stacked
from gpu_control_plane.console.pages.listing import Listing, make_listing
from gpu_control_plane.console.pages.per_fleet import per_fleet
from gpu_control_plane.console.pages.plots import capacity_plot, card_plots
from gpu_control_plane.console.pages.topology import topology
from gpu_control_plane.console.texts import LANGUAGE_COOKIE, language_of, theme_of
from gpu_control_plane.views.cards import Readings
from gpu_control_plane.views.fleet import Fleet
from unit.views.builders import card

_START = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def _request(query: str = "", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/nodes", "query_string": query.encode(), "headers": raw})


def _listing(query: str, count: int = 120) -> Listing[int]:
    return make_listing(
        _request(query),
        range(count),
        sorts={"number": lambda row: row, "odd": lambda row: (row % 2, row)},
        default="number",
        words=lambda row: (row, "even" if row % 2 == 0 else "odd"),
    )


def test_a_list_is_cut_into_pages_of_fifty() -> None:
    second = _listing("page=2")
    assert (second.rows[0], second.first, second.last, second.pages, second.total) == (50, 51, 100, 3, 120)


@pytest.mark.parametrize("page", ["0", "99", "-1", "x", ""])
def test_a_page_that_is_not_there_is_the_nearest(page: str) -> None:
    assert _listing(f"page={page}").page == (3 if page == "99" else 1)


def test_all_words_of_a_filter_must_occur() -> None:
    assert _listing("filter=odd 11").rows == [11, 111, 113, 115, 117, 119]


def test_a_column_sorts_the_other_way_round_at_the_second_click() -> None:
    once = _listing("filter=1&sort=odd&page=2")
    assert once.sorted_by("odd") == "/nodes?filter=1&sort=-odd"
    assert _listing("sort=-odd").rows[0] == 119
    assert _listing("sort=nonsense").rows[0] == 0


def test_rows_without_a_value_do_not_break_the_order() -> None:
    found: Listing[int | None] = make_listing(
        _request("sort=-value"), [3, None, 7], sorts={"value": lambda row: row}, default="value", words=lambda _row: ()
    )
    assert found.rows == [7, 3, None]


def test_language_is_the_chosen_one_else_the_browsers() -> None:
    assert language_of(_request(accept_language="de-DE,ru;q=0.8,en;q=0.5")) == "ru"
    assert language_of(_request(accept_language="ru", cookie=f"{LANGUAGE_COOKIE}=en")) == "en"
    assert language_of(_request(cookie=f"{LANGUAGE_COOKIE}=xx")) == "en"
    assert theme_of(_request(cookie="gpu-theme=<script>")) == "auto"


def test_what_is_computed_from_a_fleet_is_computed_once() -> None:
    asked: list[Fleet] = []

    @per_fleet
    def count(fleet: Fleet) -> int:
        asked.append(fleet)
        return len(asked)

    first, second = Fleet(), Fleet()
    assert [count(first), count(first), count(second), count(first)] == [1, 1, 2, 1]


def test_history_keeps_a_day_of_minutes_and_forgets_pools_that_are_gone() -> None:
    pool = msgspec.convert({"metadata": {"name": "training"}, "spec": {}}, GPUPool)
    history = CapacityHistory(Fleet)
    for minute in range(1500):
        history.record(Fleet(pools={"training": pool}), _START + timedelta(minutes=minute))
    assert len(history.of("training")) == 24 * 60
    assert history.of("training")[-1].at == _START + timedelta(minutes=1499)
    history.record(Fleet(), _START)
    assert history.of("training") == ()


def test_parts_of_a_bar_follow_each_other() -> None:
    assert stacked([("used", 3), ("idle", 0), ("faulted", 1)], 8) == [("used", 0.0, 37.5), ("faulted", 37.5, 12.5)]
    assert stacked([("used", 1)], 0) == []


def test_a_plot_needs_two_samples() -> None:
    assert capacity_plot([CapacitySample(_START, 8, 1, 0)]) is None


def test_a_plot_steps_from_sample_to_sample() -> None:
    samples = [CapacitySample(_START + timedelta(hours=hour), 8, used, 0) for hour, used in enumerate((0, 4, 8))]
    plot = capacity_plot(samples)
    assert plot is not None
    assert [line.name for line in plot.lines] == ["used", "idle", "total"]
    assert plot.lines[0].path == "M40.0,176.0H396.0V93.0H752.0V10.0"
    assert plot.lines[0].area == "M40.0,176.0H396.0V93.0H752.0V10.0V176H40.0Z"
    assert [tick.text for tick in plot.up] == ["0", "2", "4", "6", "8"]
    assert plot.across[0].text == "12:00"


def test_held_idle_is_drawn_only_where_it_was_measured() -> None:
    plot = capacity_plot([CapacitySample(_START, 8, 1), CapacitySample(_START + timedelta(hours=1), 8, 2)])
    assert plot is not None
    assert [line.name for line in plot.lines] == ["used", "total"]


def _read(hour: float, busy: int | None = None, memory: int | None = None, power: int | None = None) -> Readings:
    at = _START + timedelta(hours=hour)
    return Readings(at=at, utilisation=busy, memory_used_mib=memory, power=power, temperature=None)


def test_a_card_has_a_plot_of_everything_it_measured() -> None:
    assert card_plots([_read(0, busy=5)], None) == []
    plots = card_plots([_read(0, 0, 1024, 120), _read(1, 40, 4096, 640)], 8192)
    assert [(each.name, each.least, each.most) for each in plots] == [
        ("busy", 0, 40),
        ("memory", 1, 4),
        ("power", 120, 640),
    ]
    assert [[tick.text for tick in each.plot.up][-1] for each in plots] == ["100", "8", "600"]


def test_a_line_ends_where_nothing_was_measured() -> None:
    (plot,) = card_plots([_read(0, 0), _read(1), _read(2), _read(3, 100), _read(4, 100)], None)
    (line,) = plot.plot.lines
    assert line.path == "M40.0,106.0H123.0M289.0,10.0H372.0V10.0"
    assert line.area == "M40.0,106.0H123.0V106H40.0ZM289.0,10.0H372.0V10.0V106H289.0Z"


def test_moments_on_the_axis_are_evenly_apart_however_readings_are() -> None:
    (plot,) = card_plots([_read(0, 0), _read(0.1, 9), _read(0.2, 0), _read(4, 0)], None)
    assert [tick.text for tick in plot.plot.across] == ["12:00", "14:00", "16:00"]


def test_a_node_without_cards_has_no_drawing() -> None:
    assert topology([]) is None


def _linked(peers: dict[int, tuple[int, ...]]) -> list[GPUDevice]:
    cards = []
    for slot, others in peers.items():
        made = card(slot=slot)
        assert made.status.hardware is not None
        hardware = msgspec.structs.replace(
            made.status.hardware,
            numa_node=0 if slot < 0x20 else 1,
            nvlink_peers=tuple(f"0000:{other:02x}:00.0" for other in others),
        )
        cards.append(msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, hardware=hardware)))
    return cards


def test_cards_that_are_all_linked_share_one_bar() -> None:
    drawing = topology(_linked({0x18: (0x19, 0x28), 0x19: (0x18, 0x28), 0x28: (0x18, 0x19)}))
    assert drawing is not None
    assert drawing.bus is not None
    assert [box.number for box in drawing.numa] == [0, 1]
    assert len(drawing.links) == 3


def test_pairs_of_linked_cards_are_drawn_once_each() -> None:
    drawing = topology(_linked({0x18: (0x19,), 0x19: (0x18,), 0x28: ()}))
    assert drawing is not None
    assert drawing.bus is None
    assert len(drawing.links) == 1
