"""What the agent takes on a node with a real card, where the driver's library alone takes 18 MiB."""

from pathlib import Path

from gpu.card_env import CardEnv
from gpu.readings import fetch
from gpu.record import Record

_MOST_MIB = 80


def test_the_agent_is_small(env: CardEnv, record: Record) -> None:
    assert env.agent is not None
    for _ in range(3):
        fetch(env.port)  # a scrape is part of its life
    resident, own = _mib(env.agent.pid, "Rss"), _mib(env.agent.pid, "Private_Dirty")
    record.measure("agent: resident memory", resident, "MiB")
    record.measure("agent: memory of its own alone", own, "MiB")
    record.measure("agent: threads", len([*Path(f"/proc/{env.agent.pid}/task").iterdir()]), "")
    assert resident <= _MOST_MIB


def _mib(pid: int, kind: str) -> float:
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return next(int(fields[1]) for fields in lines if fields[0] == f"{kind}:") / 1024
