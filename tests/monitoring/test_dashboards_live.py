"""Every query of every dashboard finds something in a running demo, in the unit that its panel says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from monitoring.alerts.groups import ALERTS
from monitoring.dashboards.all import DASHBOARDS
from monitoring.grafana import Dashboard, Panel, Query, Unit, Variable
from monitoring.promql import AGENT
from monitoring.reference import chapters

from helm.chart import Helm
from monitoring.demo import AGENT_POD, Demo, Sample, eventually, running
from monitoring.demo_scenario import NAMESPACES, NODES, POOLS
from monitoring.expressions import OF_KUBERNETES

pytestmark = pytest.mark.timeout(600)

CHAPTERS: Final = chapters()
CHOICES: Final = {
    "node": "|".join((*NODES, "w")),
    "pool": "|".join(POOLS),
    "namespace": "|".join(NAMESPACES),
    "__rate_interval": "20s",
    "__range": "20s",
}
PLAUSIBLE: Final = {
    Unit.PERCENT: (0, 100),
    Unit.SHARE: (0, 1),
    Unit.CELSIUS: (20, 110),
    Unit.WATTS: (5, 3000),
    Unit.MEBIBYTES: (0, 1_000_000),
    Unit.HERTZ: (1e8, 1e10),
    Unit.JOULES: (10, 1e5),
    Unit.SECONDS: (0, 900),
}
"""What a demo of a few cards can show in each unit."""
TELLING: Final = {Unit.PERCENT: 1.5, Unit.MEBIBYTES: 100.0, Unit.BYTES_PER_SECOND: 1e6}
"""What the largest value of a unit has to reach: percents that never do are shares."""


@pytest.fixture(scope="module")
def demo(prometheus: Path, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    monitor = helm.objects({"monitoring": {"serviceMonitors": {"enabled": True}}}).one("PodMonitor", AGENT)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    relabelings = [
        {re.sub("[A-Z]", lambda big: f"_{big[0].lower()}", name): value for name, value in each.items()}
        for each in endpoint["relabelings"]
    ]
    with running(tmp_path_factory.mktemp("demo"), prometheus, relabelings) as made:
        yield made


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_every_query_finds_something(demo: Demo, board: Dashboard) -> None:
    silent = [f"{panel.title}: {query.expr}" for panel, query in _queries(board) if not _answer(demo, query)]
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_every_choice_has_values(demo: Demo, board: Dashboard) -> None:
    for variable in board.variables:
        found = _values(demo, variable)
        assert set(found) & set(CHOICES[variable.name].split("|")), variable.name


@pytest.mark.parametrize(
    ("process", "chapters"),
    [
        ("controller", [title for title in CHAPTERS if title not in ("Agent", "Console")]),
        ("agent", ["Runtime", "Agent"]),
        ("console", ["Runtime", "Console"]),
    ],
)
def test_the_page_on_metrics_lists_what_is_served_and_nothing_else(
    demo: Demo, process: str, chapters: list[str]
) -> None:
    page = {(each.name, each.kind): each.help for title in chapters for each in CHAPTERS[title]}

    def families() -> dict[tuple[str, str], str]:
        text = demo.served(process)
        helps = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
        kinds: list[tuple[str, str]] = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
        return {(name, kind): helps[name] for name, kind in kinds if not name.startswith("DCGM_")}

    eventually(lambda: families() == page)  # some come with the first that they tell of
    assert families() == page


@pytest.mark.parametrize("metric", OF_KUBERNETES)
def test_kube_state_metrics_has_what_is_asked_of_it(demo: Demo, metric: str) -> None:
    assert eventually(lambda: demo.ask(metric))


def test_a_free_card_is_not_taken_for_the_agents_own(demo: Demo) -> None:
    assert eventually(lambda: demo.ask('DCGM_FI_DEV_GPU_TEMP{pod=""}'))
    assert not demo.ask(f'{{pod="{AGENT_POD}"}}')
    assert {sample.labels["node"] for sample in demo.ask(f'up{{job="{AGENT}"}}')} == {"w"}


def test_values_are_what_their_units_say(demo: Demo) -> None:
    largest: dict[Unit, float] = {}
    for board in DASHBOARDS:
        for panel, query in _queries(board):
            values = [sample.value for sample in _answer(demo, query) if sample.value == sample.value]
            least, most = PLAUSIBLE.get(panel.unit, (0, float("inf")))
            assert all(least <= value <= most for value in values), f"{panel.title} in {panel.unit}: {values}"
            largest[panel.unit] = max([largest.get(panel.unit, 0), *values])
    assert {unit: largest[unit] >= least for unit, least in TELLING.items()} == dict.fromkeys(TELLING, True)


def test_every_rule_can_be_judged(demo: Demo) -> None:
    """Also with the labels that really come, such as those of two replicas."""

    def judged() -> dict[str, str]:
        groups = demo.get("rules")["groups"]
        health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        return health if "unknown" not in health.values() else {}

    assert eventually(judged) == {alert.name: "ok" for alert in ALERTS}


@pytest.mark.parametrize(
    ("alert", "labels"),
    [
        ("GPUCardFaulted", {"node": "h200-1", "reason": "XID79"}),
        ("GPUHardwareXID", {"Hostname": "h200-1", "xid": "79"}),
        ("GPUApplicationXID", {"Hostname": "h200-1", "xid": "13"}),
        ("GPUBurnInFailed", {"node": "h200-2", "reason": "MemoryErrors"}),
        ("GPUDriverMissing", {"node": "no-driver"}),
        ("GPUInventoryIncomplete", {"node": "half-known"}),
        ("GPUNodeWithoutPool", {"node": "h200-2"}),
        ("GPUPoolMisconfigured", {"pool": "rival"}),
        ("GPUPoolCapacityLow", {"pool": "training"}),
        ("GPUOperandNotReady", {"state": "state-dcgm-exporter"}),
    ],
)
def test_troubles_of_the_demo_are_on_their_way_to_people(demo: Demo, alert: str, labels: dict[str, str]) -> None:
    """Pending alerts count: the test does not wait for an hour."""
    wanted = ",".join(f'{name}="{value}"' for name, value in labels.items())
    assert eventually(lambda: demo.ask(f'ALERTS{{alertname="{alert}",{wanted}}}')), demo.ask("ALERTS")


def _queries(board: Dashboard) -> Iterator[tuple[Panel, Query]]:
    return ((panel, query) for panel in board.panels for query in panel.queries)


def _values(demo: Demo, variable: Variable) -> list[str]:
    def look() -> list[str]:
        return [str(value) for value in demo.get(f"label/{variable.label}/values", **{"match[]": variable.metric})]

    return eventually(look)


def _answer(demo: Demo, query: Query) -> list[Sample]:
    """What it gives without the zero that stands for nothing, each choice made."""
    expr = re.sub(r"\$(\w+)", lambda found: CHOICES[found[1]], query.expr)
    return eventually(lambda: demo.ask(expr))
