"""After all of that: no fault was ever seen on a card that has none, and watching it costs little."""

import os
import time
from pathlib import Path

from gpu.readings import scrape
from gpu.record import Record
from gpu.scene import CardScene

_IDLE_SECONDS = 20.0


def test_no_false_fault_was_raised_in_the_whole_run(scene: CardScene) -> None:
    status = scene.published()["status"]
    (healthy,) = [condition for condition in status["conditions"] if condition["type"] == "Healthy"]
    assert healthy["status"] == "True", healthy
    assert "Faulted" not in str(status.get("history"))
    assert status["telemetry"].get("lastXid") is None
    assert "DCGM_EXP_XID_ERRORS_COUNT" not in scrape(scene.port)
    assert '"healthy": true' in scene.log("agent")
    assert '"healthy": false' not in scene.log("agent")
    assert scene.conditions().get("Degraded") != "True"


def test_watching_a_card_costs_little(scene: CardScene, record: Record) -> None:
    before = _seconds_of_work(scene)
    time.sleep(_IDLE_SECONDS)
    share = (_seconds_of_work(scene) - before) / _IDLE_SECONDS
    memory = _resident_mib(scene)
    record.measure("agent: processor, without scrapes", share * 100, "% of a core")
    record.measure("agent: resident memory", memory, "MiB")
    assert share < 0.05
    assert memory < 150


def _seconds_of_work(scene: CardScene) -> float:
    fields = _proc(scene, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(scene: CardScene) -> float:
    (line,) = [line for line in _proc(scene, "status").splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def _proc(scene: CardScene, name: str) -> str:
    assert scene.agent is not None
    return Path(f"/proc/{scene.agent.pid}/{name}").read_text()
