"""The command of the Ray container."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpu_control_plane.ray.cluster.manifests.containers import Part
from gpu_control_plane.ray.cluster.manifests.start_params import render
from gpu_control_plane.ray.options import RayOptions

_OPEN_FILES: Final = "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}"
_STARTS_ITSELF: Final = "ray start"


def shell(options: RayOptions) -> list[str]:
    """The shell that runs one argument."""
    return ["/bin/bash", "-cl" if options.login_shell else "-c", "--"]


def start_command(params: Mapping[str, str], *, head: bool) -> str:
    """The command that starts Ray."""
    return f"ray start {'--head ' if head else ''}{render(params)}"


def put_command(container: Part, command: str, options: RayOptions, *, keep: bool) -> None:
    """Make the container run this, after what its user gave; a command that starts Ray by itself stays."""
    own = _joined(container.get("command") or ()) + _joined(container.get("args") or ())
    if keep or _STARTS_ITSELF in own:
        return
    generated = f"{_OPEN_FILES}; {command}"
    container["command"] = shell(options)
    container["args"] = [f"{own} && {generated}" if own else generated]


def _joined(words: Sequence[Any]) -> str:
    return "".join(f" {word} " for word in words)
