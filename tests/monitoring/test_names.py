"""Alerts and dashboards read metrics that exist."""

from typing import Final

import pytest
from monitoring.alert import Alert
from monitoring.alerts.groups import ALERTS
from monitoring.dashboards.all import DASHBOARDS
from monitoring.grafana import Dashboard
from monitoring.reference import chapters

from gpu_control_plane.agent.exporter.catalogue import METRICS
from monitoring.expressions import OF_KUBERNETES, metrics_in

OURS: Final = {metric for found in chapters().values() for metric in found}
KNOWN: Final = (
    {metric.name for metric in OURS}
    | {f"{metric.name}_bucket" for metric in OURS if metric.kind == "histogram"}
    | {str(metric.name) for metric in METRICS}
    | set(OF_KUBERNETES)
    | {"up"}
)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_reads_metrics_that_exist(alert: Alert) -> None:
    read = metrics_in(alert.expr)
    assert read
    assert read <= KNOWN


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_a_dashboard_reads_metrics_that_exist(board: Dashboard) -> None:
    assert {metric for panel in board.panels for query in panel.queries for metric in metrics_in(query.expr)} <= KNOWN


def test_no_name_is_used_twice_by_us_and_by_kubernetes() -> None:
    assert not {metric.name for metric in OURS} & set(OF_KUBERNETES)
