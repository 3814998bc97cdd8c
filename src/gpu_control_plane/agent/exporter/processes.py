"""Which container a process belongs to: from the PID that the driver reports, through its cgroup, to the container.

No API is needed: the kernel tells the cgroup, and the kubelet has a link to the log of every container, with the
container's name and id. PIDs are those of the host: the agent has to share its PID namespace.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

CONTAINER_LOGS: Final = Path("/var/log/containers")
"""The kubelet's links to the logs of containers: `<pod>_<namespace>_<container>-<id>.log`."""

POD_GROUP: Final = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=\.slice|[/:]|$)"
)
"""The control group of a pod, with its UID."""
_CONTAINER: Final = re.compile(r"[/:-](?P<id>[0-9a-f]{64})(?=\.scope|/|$)")
_LOG: Final = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>.+)-(?P<id>[0-9a-f]{64})\.log")


class PodCgroup(NamedTuple):
    """The pod and the container of a cgroup."""

    pod_uid: str
    container_id: str | None
    """None for a process of the pod outside its containers."""


class ContainerName(NamedTuple):
    """A container by its names."""

    namespace: str
    pod: str
    container: str


type Owner = Callable[[int], ContainerName | None]
"""The container of a process; None for a process of the host, or an unknown one."""


def parse_cgroup(text: str) -> PodCgroup | None:
    """The pod and container in `/proc/<pid>/cgroup`, of cgroup version 1 or 2, with the cgroupfs or systemd driver."""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        pod = POD_GROUP.search(path)
        if pod is not None:
            container = _CONTAINER.search(path, pod.end())
            return PodCgroup(pod["uid"].replace("_", "-"), container["id"] if container else None)
    return None


def containers_by_id(folder: Path = CONTAINER_LOGS) -> dict[str, ContainerName]:
    """The containers with a log of the kubelet's, by id."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return {}
    found = (_LOG.fullmatch(name) for name in names)
    return {log["id"]: ContainerName(log["namespace"], log["pod"], log["container"]) for log in found if log}


def pod_of(pid: int, proc: Path = Path("/proc")) -> str | None:
    """The UID of the pod that a process belongs to; None for a process of the host, or one that has ended."""
    try:
        cgroup = parse_cgroup((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return None
    return cgroup.pod_uid if cgroup else None


def owner_in(containers: Mapping[str, ContainerName], proc: Path = Path("/proc")) -> Owner:
    """Finds the containers of processes by their cgroups under `proc`."""

    def owner(pid: int) -> ContainerName | None:
        try:
            cgroup = parse_cgroup((proc / str(pid) / "cgroup").read_text())
        except OSError:  # it has just ended
            return None
        return containers.get(cgroup.container_id) if cgroup and cgroup.container_id else None

    return owner
