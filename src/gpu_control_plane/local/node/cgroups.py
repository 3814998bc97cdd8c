"""The control group for a node's pods, in every hierarchy: one in cgroup v2, one for each controller in v1.

Each kubelet gets a root of its own: two with the same root would kill each other's pods.
"""

import contextlib
import errno
import time
from pathlib import Path

from gpu_control_plane.local.errors import LocalError

_MOUNT = Path("/sys/fs/cgroup")
_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.02


def make(name: str) -> None:
    unified = _is_unified()
    if unified:
        _enable_controllers()
    for hierarchy in _hierarchies():
        group = hierarchy / name
        try:
            group.mkdir(exist_ok=True)
        except OSError as error:
            raise LocalError(
                f"The control group {group} cannot be made ({error.strerror}), and a real node needs one."
                " In a container, start that container with the privilege to make control groups."
            ) from error
        if not unified and (group / "cpuset.cpus").exists():
            _inherit_processors(group)


def remove(name: str) -> None:
    """Remove the group and all below it. Its processes have ended; the kernel may count them for a moment longer."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    for hierarchy in _hierarchies():
        for group in _deepest_first(hierarchy / name):
            _remove_empty(group, deadline)


def _is_unified() -> bool:
    return (_MOUNT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    if _is_unified():
        return [_MOUNT]
    return [path for path in _MOUNT.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def _enable_controllers() -> None:
    """Enable controllers for groups below the root, one at a time: some may be in use by cgroup v1."""
    for controller in (_MOUNT / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (_MOUNT / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_processors(group: Path) -> None:
    """A new cpuset of cgroup v1 is empty, and nothing can run in it."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        (group / file).write_text((group.parent / file).read_text())


def _deepest_first(group: Path) -> list[Path]:
    if not group.exists():
        return []
    below = [path for path in group.rglob("*") if path.is_dir()]
    return [*sorted(below, key=lambda path: len(path.parts), reverse=True), group]


def _remove_empty(group: Path, deadline: float) -> None:
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() >= deadline:
                raise LocalError(
                    f"The control group {group} still holds processes of a stopped node. End those listed in"
                    f" {group}/cgroup.procs, and try again."
                ) from error
            time.sleep(_POLL_SECONDS)
        else:
            return
