"""Panels show each metric in the unit it is measured in, or in what their expression makes of it."""

import re
from typing import Final

import pytest
from monitoring.dashboards.all import DASHBOARDS
from monitoring.grafana import Dashboard, Panel, Query, Unit

from monitoring.expressions import measured_in, treatment

MEASURED: Final = {
    r"DCGM_FI_DEV_(GPU_UTIL|MEM_COPY_UTIL)": "percent",
    r"DCGM_FI_PROF_\w+_ACTIVE": "share",
    r"DCGM_FI_PROF_PCIE_[TR]X_BYTES": "bytes/s",
    r"DCGM_FI_DEV_FB_\w+": "MiB",
    r"DCGM_FI_DEV_\w*TEMP": "°C",
    r"DCGM_FI_DEV_POWER_USAGE": "W",
    r"DCGM_FI_DEV_SM_CLOCK": "MHz",
    r"DCGM_FI_DEV_\w+_VIOLATION": "ns, counted",
    r"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "mJ, counted",
    r"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "KiB, counted",
    r"DCGM_FI_DEV_XID_ERRORS": "code",
    r"DCGM_FI_DEV_(ECC_\w+|\w+_ROWS|ROW_REMAP_FAILURE|PCIE_REPLAY_COUNTER)|DCGM_EXP_XID_ERRORS_COUNT": "number",
    r"kube_\w+_seconds_bucket": "s, in buckets",
    r"gpu_ray_\w+_timestamp_seconds": "s, since 1970",
    r"kuberay_\w+_seconds": "s",
    r"kuberay_\w+": "number",
    r"gpu_\w+|gpupool_\w+|kube_\w+|up": "number",
}
"""In what each metric is measured, by pattern; the first that fits counts. From DCGM's field list and our own help."""
SHOWN: Final = {
    ("percent", ""): Unit.PERCENT,
    ("share", ""): Unit.SHARE,
    ("bytes/s", ""): Unit.BYTES_PER_SECOND,
    ("MiB", ""): Unit.MEBIBYTES,
    ("MiB", "share"): Unit.SHARE,
    ("°C", ""): Unit.CELSIUS,
    ("°C", "count"): Unit.COUNT,
    ("W", ""): Unit.WATTS,
    ("MHz", "* 1e6"): Unit.HERTZ,
    ("ns, counted", "rate / 1e9"): Unit.SHARE,
    ("mJ, counted", "increase / 1000"): Unit.JOULES,
    ("KiB, counted", "rate * 1024"): Unit.BYTES_PER_SECOND,
    ("code", ""): Unit.CODE,
    ("number", ""): Unit.COUNT,
    ("number", "count"): Unit.COUNT,
    ("number", "share"): Unit.SHARE,
    ("number", "rate"): Unit.PER_SECOND,
    ("number", "increase"): Unit.COUNT,
    ("s", ""): Unit.SECONDS,
    ("s, since 1970", ""): Unit.SECONDS,
    ("s, since 1970", "count"): Unit.COUNT,
    ("s, in buckets", "histogram_quantile"): Unit.SECONDS,
}
"""The unit of what is shown, by what is measured and what is done with it."""
COUNTS_OF_OTHERS: Final = {"Cards held and idle"}
"""Panels that count what fulfils a condition, whatever that is measured in."""

QUERIES: Final = [
    pytest.param(board, panel, query, id=f"{board.name}: {panel.title} {query.legend}")
    for board in DASHBOARDS
    for panel in board.panels
    for query in panel.queries
]


@pytest.mark.parametrize(("board", "panel", "query"), QUERIES)
def test_a_panel_says_the_unit_of_its_numbers(board: Dashboard, panel: Panel, query: Query) -> None:
    if panel.title in COUNTS_OF_OTHERS:
        assert panel.unit is Unit.COUNT
        return
    for metric in measured_in(query.expr):
        assert SHOWN[_measure(metric), treatment(query.expr)] is panel.unit, metric


@pytest.mark.parametrize(
    ("expr", "measure", "expected"),
    [
        ('max by (gpu) (DCGM_FI_DEV_GPU_UTIL{gpu=~"0"})', "percent", ""),
        ("max by (gpu) (rate(DCGM_FI_DEV_THERMAL_VIOLATION[5m])) / 1e9", "ns, counted", "rate / 1e9"),
        ("sum by (gpu) (DCGM_FI_DEV_FB_USED) / (sum by (gpu) (DCGM_FI_DEV_FB_USED))", "MiB", "share"),
    ],
)
def test_expressions_are_understood(expr: str, measure: str, expected: str) -> None:
    (metric,) = measured_in(expr)
    assert (_measure(metric), treatment(expr)) == (measure, expected)


def _measure(metric: str) -> str:
    return next(measure for pattern, measure in MEASURED.items() if re.fullmatch(pattern, metric))
