"""Prometheus' own parser reads back exactly what was measured."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.exporter.catalogue import METRICS, XID_COUNT
from gpu_control_plane.agent.exporter.exposition import Series, exposition, label_text
from unit.agent.exporter.readings import read

_samples = st.dictionaries(st.sampled_from([*map(str, Measure)]), st.floats(allow_nan=False), max_size=6)


def test_the_catalogue_has_everything_a_backend_can_measure_once() -> None:
    names = [metric.name for metric in METRICS]
    assert sorted(names) == sorted([*Measure, XID_COUNT])


def test_a_series_is_written_as_prometheus_wants_it() -> None:
    body = exposition([Series('gpu="0"', {Measure.GPU_TEMP: 31, Measure.POWER_USAGE: 76.289})])
    assert body.decode() == (
        "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n"
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 31\n'
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n"
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
        'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 76.289\n'
    )


def test_types_and_help_reach_prometheus() -> None:
    body = exposition([Series("", dict.fromkeys(map(str, Measure), 1.0))])
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    for metric in METRICS:
        if metric.name != XID_COUNT:
            assert (families[metric.name].type, families[metric.name].documentation) == (metric.kind, metric.help)


def test_a_blank_reading_is_left_out_and_a_zero_is_not() -> None:
    body = exposition([Series("", {Measure.GPU_TEMP: math.nan, Measure.GPU_UTIL: 0, Measure.DEC_UTIL: 0.0})])
    assert read(body) == {Measure.GPU_UTIL: [({}, 0)], Measure.DEC_UTIL: [({}, 0)]}


def test_a_metric_that_is_not_in_the_catalogue_is_served() -> None:
    assert read(exposition([Series("", {"DCGM_FI_NEW": 4})])) == {"DCGM_FI_NEW": [({}, 4)]}


def test_no_cards_are_an_empty_answer() -> None:
    assert exposition([]) == b""


@given(st.lists(st.tuples(st.text(), _samples), max_size=4))
def test_whatever_labels_and_values_hold_is_read_back(given_series: list[tuple[str, dict[str, float]]]) -> None:
    body = exposition(
        Series(label_text({"at": str(place), "modelName": text}), samples)
        for place, (text, samples) in enumerate(given_series)
    )
    expected: dict[str, list[tuple[dict[str, str], float]]] = {}
    for place, (text, samples) in enumerate(given_series):
        for name, value in samples.items():
            expected.setdefault(name, []).append(({"at": str(place), "modelName": text}, value))
    assert read(body) == expected
