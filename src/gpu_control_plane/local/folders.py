"""Where the local cluster keeps things: binaries in a cache that may be deleted, clusters in a state folder."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from gpu_control_plane.local.errors import LocalError

CACHE_VARIABLE = "GPU_CONTROL_PLANE_CACHE"
STATE_VARIABLE = "GPU_CONTROL_PLANE_STATE"

_FOLDER = "gpu-control-plane"
_CLUSTER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder for binaries: `$GPU_CONTROL_PLANE_CACHE`, or `gpu-control-plane` in the user's cache folder."""
    if chosen := environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    return _user_folder(environ, "XDG_CACHE_HOME", ".cache") / _FOLDER


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that holds one folder per cluster."""
    if chosen := environ.get(STATE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    return _user_folder(environ, "XDG_STATE_HOME", ".local/state") / _FOLDER


def cluster_folder(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of one cluster. Names are short and plain because they end up in paths and kubeconfigs."""
    if not _CLUSTER_NAME.fullmatch(name):
        raise LocalError(
            f"{name!r} cannot be a cluster's name. Use up to 40 lower-case letters, digits and hyphens,"
            " such as --name gpu-2."
        )
    return state_folder(environ) / name


def _user_folder(environ: Mapping[str, str], variable: str, default: str) -> Path:
    # The XDG specification asks to ignore relative paths.
    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else Path.home() / default
