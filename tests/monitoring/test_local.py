"""`kubectl gpu monitoring` brings a real Prometheus to a local cluster, and takes it away again."""

import json
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from monitoring.alerts.groups import ALERTS
from monitoring.promql import AGENT, CONTROLLER

from blocking_wait import until
from gpu_control_plane.local import monitoring
from integration.local.commands import CommandLine

CONSOLE = "gpu-control-plane-console"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def gpu(tmp_path: Path, prometheus: Path) -> Iterator[CommandLine]:
    assert prometheus.exists()
    made = CommandLine(tmp_path)
    up = made.run("up", "--nodes", "1")
    assert up.returncode == 0, up.stderr
    yield made
    made.run("down")


def ask(url: str, path: str, **parameters: str) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:  # noqa: S310 - our own server
        return json.load(answer)["data"]


def test_one_command_watches_a_local_cluster_and_another_ends_it(gpu: CommandLine) -> None:
    started = gpu.run("monitoring")
    assert started.returncode == 0, started.stderr
    (url,) = re.findall(r"(http://127\.0\.0\.1:\d+)/alerts", started.stdout)
    _is_watched(url)
    health = {rule["name"] for group in ask(url, "rules")["groups"] for rule in group["rules"]}
    assert health == {alert.name for alert in ALERTS}
    assert "Grafana" in started.stdout

    again = gpu.run("up")  # keeps everything where Prometheus looks for it
    assert again.returncode == 0, again.stderr
    _is_watched(url)

    assert gpu.run("monitoring", "--stop").returncode == 0
    port = int(url.rpartition(":")[2])
    until(lambda: not _listens(port))
    assert not monitoring.read_ports(gpu.folder)


def _is_watched(url: str) -> None:
    """The controller leads, the simulated agents and the console answer, and nothing is reached but by loopback."""

    def watched() -> bool:
        try:
            up = {each["metric"]["job"]: each["value"][1] for each in ask(url, "query", query="up")["result"]}
            leads = ask(url, "query", query="max(kube_leading) == 1")["result"]
        except OSError:  # Prometheus is starting
            return False
        return up == {CONTROLLER: "1", AGENT: "1", CONSOLE: "1"} and bool(leads)

    until(watched)
    targets = ask(url, "targets")["activeTargets"]
    assert {urllib.parse.urlsplit(each["scrapeUrl"]).hostname for each in targets} == {"127.0.0.1"}


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_grafana_is_given_its_data_source_and_dashboards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as files go: where Grafana is not installed, nobody can start it."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/sbin/{name}")
    monkeypatch.setattr(monitoring, "_GRAFANA_HOMES", (tmp_path,))
    sidecar = monitoring.grafana(tmp_path, {monitoring.PROMETHEUS: 9090, monitoring.GRAFANA: 3000})
    assert sidecar is not None
    assert sidecar.environ["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    folder = Path(sidecar.environ["GF_PATHS_PROVISIONING"])
    source = json.loads((folder / "datasources/gpu.yaml").read_text())["datasources"][0]
    boards = json.loads((folder / "dashboards/gpu.yaml").read_text())["providers"][0]
    assert source["url"] == "http://127.0.0.1:9090"
    assert {path.stem for path in Path(boards["options"]["path"]).glob("*.json")} >= {"gpu-node", "gpu-inventory"}
