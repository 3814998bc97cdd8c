"""Prometheus, and Grafana where it is installed, beside a local cluster: with the chart's alerts and dashboards.

Both are sidecars, on loopback, and send nothing anywhere else. Which port each process serves its metrics on is kept in
a file of the cluster's folder, so that it is the same after a restart; while the file is there, `up` goes by it.
"""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gpu_control_plane.local.credentials import write_private
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.ports import LOOPBACK, free_port
from gpu_control_plane.local.sidecars import Sidecar

PROMETHEUS: Final = "prometheus"
GRAFANA: Final = "grafana"
CHART_FILES: Final = Path(__file__).parents[3] / "charts/gpu-control-plane/monitoring"
"""The rules and dashboards that the chart brings."""
_FOLDER: Final = "monitoring"
_CONTROLLER: Final = "controller"
_CONTROLLER_JOB: Final = "gpu-control-plane-controller"
_CONSOLE: Final = "console"
_CONSOLE_JOB: Final = "gpu-control-plane-console"
_AGENT_JOB: Final = "gpu-control-plane-agent"
_GRAFANA_HOMES: Final = (Path("/usr/share/grafana"), Path("/opt/grafana"))


def read_ports(folder: Path) -> dict[str, int]:
    """The ports, by the name of the sidecar; none while the cluster is not monitored."""
    try:
        return msgspec.json.decode((folder / _FOLDER / "ports.json").read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}


def choose_ports(folder: Path, names: Iterable[str], *, prometheus: int | None = None) -> dict[str, int]:
    """Have a port for each of these: the one it had, else a free one."""
    known = read_ports(folder)
    ports = {name: known.get(name) or free_port() for name in names}
    if prometheus is not None:
        ports[PROMETHEUS] = prometheus
    (folder / _FOLDER).mkdir(exist_ok=True, mode=0o700)
    write_private(folder / _FOLDER / "ports.json", msgspec.json.encode(ports))
    return ports


def forget_ports(folder: Path) -> None:
    shutil.rmtree(folder / _FOLDER, ignore_errors=True)


def serving_metrics(sidecar: Sidecar, port: int | None) -> Sidecar:
    """The sidecar with its metrics on this port of the loopback interface; as it is where there is none for it."""
    if port is None:
        return sidecar
    options = ("--status-host", LOOPBACK, "--status-port", str(port))
    kept = sidecar.command[: -len(options)] if sidecar.command[-len(options)] == options[0] else sidecar.command
    return msgspec.structs.replace(sidecar, command=(*kept, *options))


def prometheus(folder: Path, ports: Mapping[str, int]) -> Sidecar:
    """Prometheus as a sidecar, its configuration written."""
    program = shutil.which(PROMETHEUS)
    if program is None:
        raise LocalError("Prometheus is not installed: on Debian and Ubuntu, `apt-get install prometheus` brings it.")
    if not (CHART_FILES / "rules.yaml").exists():
        raise LocalError(f"{CHART_FILES} is missing: the alerts come with the sources of the GPU control plane.")
    config = folder / _FOLDER / "prometheus.yaml"
    write_private(config, msgspec.json.format(msgspec.json.encode(scrape_configuration(ports)), indent=2))
    return Sidecar(
        name=PROMETHEUS,
        command=(
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / _FOLDER / PROMETHEUS}",
            "--storage.tsdb.retention.time=1d",
            f"--web.listen-address={LOOPBACK}:{ports[PROMETHEUS]}",
        ),
    )


def scrape_configuration(ports: Mapping[str, int]) -> dict[str, Any]:
    """What Prometheus scrapes, as the chart's monitors have it scraped. JSON is YAML, too."""
    others = (_CONTROLLER, _CONSOLE, PROMETHEUS, GRAFANA)
    agents = {name: port for name, port in ports.items() if name not in others}
    consoles = [ports[_CONSOLE]] if _CONSOLE in ports else []
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": [str(CHART_FILES / "rules.yaml")],
        "scrape_configs": [
            {
                "job_name": _CONTROLLER_JOB,
                "static_configs": [{"targets": [f"{LOOPBACK}:{ports[_CONTROLLER]}"]}],
            },
            *({"job_name": _CONSOLE_JOB, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]} for port in consoles),
            {
                "job_name": _AGENT_JOB,
                "honor_labels": True,
                "static_configs": [
                    {"targets": [f"{LOOPBACK}:{port}"], "labels": {"node": name.removeprefix("agent-")}}
                    for name, port in agents.items()
                ],
            },
        ],
    }


def grafana(folder: Path, ports: Mapping[str, int]) -> Sidecar | None:
    """Grafana as a sidecar, its data source and dashboards provisioned; None where it is not installed."""
    program = shutil.which("grafana") or shutil.which("grafana-server")
    home = next((path for path in _GRAFANA_HOMES if path.exists()), None)
    if program is None or home is None:
        return None
    provisioning = folder / _FOLDER / "provisioning"
    source = {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Prometheus",
                "type": "prometheus",
                "access": "proxy",
                "isDefault": True,
                "url": f"http://{LOOPBACK}:{ports[PROMETHEUS]}",
            }
        ],
    }
    boards = {
        "apiVersion": 1,
        "providers": [{"name": "gpu", "type": "file", "options": {"path": str(CHART_FILES / "dashboards")}}],
    }
    for kind, content in (("datasources", source), ("dashboards", boards)):
        (provisioning / kind).mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(provisioning / kind / "gpu.yaml", msgspec.json.encode(content))
    server = (program, "server") if Path(program).name == "grafana" else (program,)
    return Sidecar(
        name=GRAFANA,
        command=(*server, "--homepath", str(home)),
        environ={
            "GF_SERVER_HTTP_ADDR": LOOPBACK,
            "GF_SERVER_HTTP_PORT": str(ports[GRAFANA]),
            "GF_PATHS_DATA": str(folder / _FOLDER / GRAFANA),
            "GF_PATHS_LOGS": str(folder / "logs"),
            "GF_PATHS_PROVISIONING": str(provisioning),
            "GF_AUTH_ANONYMOUS_ENABLED": "true",
            "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
            # Nothing leaves this machine.
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
            "GF_NEWS_NEWS_FEED_ENABLED": "false",
        },
    )
