"""After all of that: no fault was ever seen on a card that has none, and watching it costs little."""

import os
import time
from pathlib import Path

from gpu.card_env import CardEnv
from gpu.readings import scrape
from gpu.record import Record

_IDLE_SECONDS = 20.0


def test_no_false_fault_was_raised_in_the_whole_run(env: CardEnv) -> None:
    status = env.published()["status"]
    (healthy,) = [condition for condition in status["conditions"] if condition["type"] == "Healthy"]
    assert healthy["status"] == "True", healthy
    assert "Faulted" not in str(status.get("history"))
    assert status["telemetry"].get("lastXid") is None
    assert "DCGM_EXP_XID_ERRORS_COUNT" not in scrape(env.port)
    assert '"healthy": true' in env.log("agent")
    assert '"healthy": false' not in env.log("agent")
    assert env.conditions().get("Degraded") != "True"


def test_watching_a_card_costs_little(env: CardEnv, record: Record) -> None:
    before = _seconds_of_work(env)
    time.sleep(_IDLE_SECONDS)
    share = (_seconds_of_work(env) - before) / _IDLE_SECONDS
    memory = _resident_mib(env)
    record.measure("agent: processor, without scrapes", share * 100, "% of a core")
    record.measure("agent: resident memory", memory, "MiB")
    assert share < 0.05
    assert memory < 150


def _seconds_of_work(env: CardEnv) -> float:
    fields = _proc(env, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(env: CardEnv) -> float:
    (line,) = [line for line in _proc(env, "status").splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def _proc(env: CardEnv, name: str) -> str:
    assert env.agent is not None
    return Path(f"/proc/{env.agent.pid}/{name}").read_text()
