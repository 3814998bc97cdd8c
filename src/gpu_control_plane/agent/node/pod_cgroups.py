"""Which pods still have processes: by the control groups that the kubelet makes for its pods, named by their UIDs.

A pod's group is the last thing that the kubelet removes, also of a pod that was deleted by force. All file systems of
control groups are understood: version 2, and of version 1 one hierarchy, which is as good as another.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import structlog

from gpu_control_plane.agent.exporter.processes import POD_GROUP
from gpu_control_plane.agent.kubelet.inotify import changes

_ROOT_NAME: Final = "kubepods"
"""In the name of the group above all pods, whatever the kubelet's cgroup root and driver."""
_ROOT_DEPTH: Final = 3
"""How far below the mount the group above all pods is looked for."""
_POD_DEPTH: Final = 2
"""How far below that one pods are: directly, or in the group of their QoS class."""
_HIERARCHIES: Final = ("pids", "memory", "cpu", "systemd")
_RETRY_SECONDS: Final = 15.0
"""Time until groups are looked for again that are not there, or cannot be watched."""

_log = structlog.get_logger(component="agent.pod_cgroups")


class PodCgroups:
    """The control groups of pods below the mount of a machine."""

    def __init__(self, mount: Path, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._mount = mount
        self._sleep = sleep
        self._roots: tuple[Path, ...] = ()

    def living(self, uids: Collection[str]) -> frozenset[str]:
        """Those of these pods that have processes. Blocks, but not for long."""
        wanted = frozenset(uids)
        if not wanted:
            return wanted
        found = self._groups(wanted)
        if found.keys() != wanted:
            self._roots = tuple(_named(self._hierarchy(), _ROOT_NAME, _ROOT_DEPTH))
            found = self._groups(wanted)
        return frozenset(uid for uid, group in found.items() if _has_processes(group))

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Call back whenever a pod has got its group or has lost it, until cancelled."""
        while True:
            parents = await asyncio.to_thread(self._parents)
            try:
                await self._watch(parents, on_change)
            except OSError as error:
                _log.warning("control groups cannot be watched: the end of a pod is noticed later", why=str(error))
                parents = ()
            if not parents:
                await self._sleep(_RETRY_SECONDS)

    async def _watch(self, parents: tuple[Path, ...], on_change: Callable[[], None]) -> None:
        """Until there are others."""
        async with AsyncExitStack() as stack:
            watched = [await stack.enter_async_context(changes(parent)) for parent in parents]
            on_change()  # What has happened until now was not noticed.
            while watched and await asyncio.to_thread(self._parents) == parents:
                await _first(each.next() for each in watched)
                on_change()
                if any(each.gone for each in watched):
                    return

    def _parents(self) -> tuple[Path, ...]:
        """The groups in which those of pods are."""
        roots = tuple(_named(self._hierarchy(), _ROOT_NAME, _ROOT_DEPTH))
        classes = (each for root in roots for each in _entries(root) if POD_GROUP.search(each.name) is None)
        return tuple(sorted((*roots, *classes)))

    def _groups(self, wanted: frozenset[str]) -> dict[str, Path]:
        groups = (group for root in self._roots for group in _folders(root, _POD_DEPTH))
        named = ((POD_GROUP.search(group.name), group) for group in groups)
        by_uid = ((found["uid"].replace("_", "-"), group) for found, group in named if found)
        return {uid: group for uid, group in by_uid if uid in wanted}

    def _hierarchy(self) -> Path:
        if (self._mount / "cgroup.controllers").exists():
            return self._mount
        mounted = (self._mount / name for name in _HIERARCHIES)
        return next((path for path in mounted if path.is_dir()), self._mount)


async def _first(waits: Iterable[Coroutine[None, None, None]]) -> None:
    """Wait for one of them, and give the others up."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _named(folder: Path, name: str, depth: int) -> Iterator[Path]:
    """The uppermost folders with this in their names."""
    for each in _entries(folder):
        if name in each.name:
            yield each
        elif depth > 1:
            yield from _named(each, name, depth - 1)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    for each in _entries(folder):
        yield each
        if depth > 1 and POD_GROUP.search(each.name) is None:
            yield from _folders(each, depth - 1)


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # it has just been removed
        return []


def _has_processes(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:  # version 1, where every group below has to be looked at; or it has just been removed
        return _lists_processes(group) or any(map(_has_processes, _entries(group)))


def _lists_processes(group: Path) -> bool:
    try:
        return bool((group / "cgroup.procs").read_text())
    except OSError:
        return False
