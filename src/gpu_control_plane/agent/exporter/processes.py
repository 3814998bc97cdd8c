"""Whose program it is: from the PID the driver reports, through its cgroup, to the container it lives in.

Nobody has to be asked: the kernel tells the cgroup, and the kubelet leaves a link named after the container, with its
id, for every container it starts. PIDs are those of the host: the agent has to share its PID namespace.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

CONTAINER_LOGS: Final = Path("/var/log/containers")
"""Where the kubelet links the log of every container: `<pod>_<namespace>_<container>-<id>.log`."""

_POD: Final = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=\.slice|[/:]|$)"
)
_CONTAINER: Final = re.compile(r"[/:-](?P<id>[0-9a-f]{64})(?=\.scope|/|$)")
_LOG: Final = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log")


class Placement(NamedTuple):
    """Where a process lives."""

    pod_uid: str
    container_id: str | None
    """None for a process of the pod that is in none of its containers."""


class ContainerName(NamedTuple):
    """A container as people know it."""

    namespace: str
    pod: str
    container: str


type Owner = Callable[[int], ContainerName | None]
"""Says in which container a process lives; None for a process of the host, or one that is not known."""


def parse_cgroup(text: str) -> Placement | None:
    """The pod and container in `/proc/<pid>/cgroup`, of version 1 or 2, by the cgroupfs or the systemd driver."""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        pod = _POD.search(path)
        if pod is not None:
            container = _CONTAINER.search(path, pod.end())
            return Placement(pod["uid"].replace("_", "-"), container["id"] if container else None)
    return None


def containers_by_id(folder: Path = CONTAINER_LOGS) -> dict[str, ContainerName]:
    """The containers the kubelet keeps logs of; empty where it keeps none."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return {}
    found = (_LOG.fullmatch(name) for name in names)
    return {log["id"]: ContainerName(log["namespace"], log["pod"], log["container"]) for log in found if log}


def owner_in(containers: Mapping[str, ContainerName], proc: Path = Path("/proc")) -> Owner:
    """An owner that looks processes up under `proc`."""

    def owner(pid: int) -> ContainerName | None:
        try:
            placement = parse_cgroup((proc / str(pid) / "cgroup").read_text())
        except OSError:  # it has just ended
            return None
        return containers.get(placement.container_id) if placement and placement.container_id else None

    return owner
