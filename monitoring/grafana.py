"""Dashboards as Grafana reads them, made from a few plain parts: rows of panels, each with its queries and its unit.

Only what our dashboards need is here. Positions are worked out from left to right, so that adding a panel moves the
others without counting columns.
"""

import enum
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from monitoring.alert import RUNBOOKS

_COLUMNS: Final = 24
_SCHEMA: Final = 39
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Unit(enum.StrEnum):
    """Units under the names that Grafana has for them."""

    COUNT = "short"
    PERCENT = "percent"
    """0 to 100."""
    SHARE = "percentunit"
    """0 to 1."""
    MEBIBYTES = "mbytes"
    BYTES_PER_SECOND = "binBps"
    CELSIUS = "celsius"
    WATTS = "watt"
    JOULES = "joule"
    HERTZ = "hertz"
    SECONDS = "s"
    PER_SECOND = "cps"
    CODE = "none"
    """A number that is a name, such as an XID."""


class PanelType(enum.StrEnum):
    """How a panel shows its data."""

    LINES = "timeseries"
    STACKED = "stacked"
    NUMBER = "stat"
    TABLE = "table"


class Query(msgspec.Struct, frozen=True):
    """A query to Prometheus."""

    expr: str
    legend: str
    zero: bool = False
    """Nothing found is a zero, for problems that have series only while they last."""

    @property
    def promql(self) -> str:
        return f"{self.expr} or vector(0)" if self.zero else self.expr


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel of a dashboard."""

    title: str
    queries: tuple[Query, ...]
    unit: Unit
    about: str
    """What it shows, for a reader who sees it for the first time."""
    alerts: tuple[str, ...] = ()
    """Alerts about the same thing: their runbooks say what to do."""
    look: PanelType = PanelType.LINES
    width: int = 8
    height: int = 7
    red_from: float | None = None
    """From this value on the number is shown in red."""

    @property
    def description(self) -> str:
        pages = ", ".join(f"{RUNBOOKS}/{name}.md" for name in self.alerts)
        return f"{self.about} What to do: {pages}" if pages else self.about


class Row(msgspec.Struct, frozen=True):
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


class Variable(msgspec.Struct, frozen=True):
    """A choice at the top: the values that a label has in a metric."""

    name: str
    metric: str
    label: str
    title: str
    everything: bool = True
    """Whether all values may be chosen at once, and are at first."""


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """A page of panels."""

    name: str
    title: str
    about: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = ()
    links: Sequence[str] = ()
    """Names of dashboards to go on to."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)

    def json(self) -> dict[str, Any]:
        """As Grafana imports it."""
        return {
            "uid": self.name,
            "title": self.title,
            "description": self.about,
            "tags": ["gpu-control-plane"],
            "schemaVersion": _SCHEMA,
            "version": 1,
            "editable": False,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "browser",
            "graphTooltip": 1,
            "annotations": {"list": []},
            "links": [_link(name) for name in self.links],
            "templating": {"list": [_data_source(), *map(_variable, self.variables)]},
            "panels": _placed(self.rows),
        }


def _placed(rows: Sequence[Row]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        made.append(
            {"id": len(made) + 1, "type": "row", "title": row.title, "gridPos": place, "collapsed": False, "panels": []}
        )
        top += 1
        left = line = 0
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                left, top, line = 0, top + line, 0
            made.append(_panel(panel, len(made) + 1, {"x": left, "y": top, "w": panel.width, "h": panel.height}))
            left, line = left + panel.width, max(line, panel.height)
        top += line
    return made


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    stacked = panel.look is PanelType.STACKED
    return {
        "id": number,
        "type": PanelType.LINES.value if stacked else panel.look.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _field(panel, stacked=stacked), "overrides": []},
        "options": _options(panel.look),
        "targets": [_target(panel, query, chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        **({"transformations": _tidy(panel)} if panel.look is PanelType.TABLE else {}),
    }


def _field(panel: Panel, *, stacked: bool) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    field: dict[str, Any] = {
        "unit": panel.unit.value,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if panel.look is PanelType.NUMBER else "palette-classic"},
    }
    if panel.unit in (Unit.PERCENT, Unit.SHARE):
        field |= {"min": 0, "max": 100 if panel.unit is Unit.PERCENT else 1}
    if panel.look in (PanelType.LINES, PanelType.STACKED):
        field["custom"] = {
            "fillOpacity": 30 if stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if stacked else "none"},
        }
    return field


def _options(look: PanelType) -> dict[str, Any]:
    if look is PanelType.NUMBER:
        shown = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": shown, "orientation": "auto", "colorMode": "value", "graphMode": "area"}
    if look is PanelType.TABLE:
        return {"showHeader": True}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _target(panel: Panel, query: Query, ref: str) -> dict[str, Any]:
    at_once = panel.look in (PanelType.TABLE, PanelType.NUMBER)
    return {
        "refId": ref,
        "datasource": _SOURCE,
        "expr": query.promql,
        "legendFormat": query.legend,
        "format": "table" if panel.look is PanelType.TABLE else "time_series",
        "instant": at_once,
        "range": not at_once,
    }


def _tidy(panel: Panel) -> list[dict[str, Any]]:
    """One table of all queries, without the time, each column under the name of its query."""
    names = {f"Value #{chr(ord('A') + index)}": query.legend for index, query in enumerate(panel.queries)}
    if len(panel.queries) == 1:
        names = {"Value": panel.queries[0].legend}
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}},
    ]


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.title,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({variable.metric}, {variable.label})", "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": variable.everything,
        **({"allValue": ".*"} if variable.everything else {}),
        "current": {"text": "All", "value": "$__all"} if variable.everything else {"text": "", "value": ""},
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "default", "value": "default"},
    }


def _link(name: str) -> dict[str, Any]:
    return {
        "title": name,
        "type": "link",
        "url": f"/d/{name}",
        "icon": "dashboard",
        "tooltip": "",
        "tags": [],
        "asDropdown": False,
        "targetBlank": False,
        "keepTime": True,
        "includeVars": True,
    }
