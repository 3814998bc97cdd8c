"""A kubectl of the cluster's version, at a path that stays the same when versions change."""

import shutil
from pathlib import Path

from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.store import Store, replace_link


def link_kubectl(program: Path) -> Path:
    """Point the link at this program, and return the link; the program itself where the cache is read-only.

    When the link is on PATH, as `kubectl gpu up` advises, `program` may be the link itself: it stays as it is.
    """
    link = _link()
    if link.exists() and link.samefile(program):
        return link
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        replace_link(link, program)
    except OSError:
        return program
    return link


def find_kubectl() -> Path | None:
    """The kubectl to show to people: the link, the one in the cache, or the one on PATH."""
    link = _link()
    if link.exists():
        return link
    on_path = shutil.which("kubectl")
    return Store(cache_folder(), this_platform()).find("kubectl") or (Path(on_path) if on_path else None)


def _link() -> Path:
    return cache_folder() / "bin" / "kubectl"
