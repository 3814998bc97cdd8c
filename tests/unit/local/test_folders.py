"""Where things are kept follows the user's settings."""

from pathlib import Path

import pytest

from gpu_control_plane.local import LocalError, cache_folder
from gpu_control_plane.local.folders import cluster_folder, state_folder


def test_our_own_variable_comes_first() -> None:
    assert cache_folder({"GPU_CONTROL_PLANE_CACHE": "/chosen", "XDG_CACHE_HOME": "/xdg"}) == Path("/chosen")


def test_then_the_users_cache_folder() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/xdg"}) == Path("/xdg/gpu-control-plane")


@pytest.mark.parametrize("environ", [{}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}])
def test_then_the_usual_place(environ: dict[str, str]) -> None:
    assert cache_folder(environ) == Path.home() / ".cache" / "gpu-control-plane"


def test_each_cluster_has_a_folder() -> None:
    assert cluster_folder("gpu", {"XDG_STATE_HOME": "/state"}) == Path("/state/gpu-control-plane/gpu")
    assert state_folder({"GPU_CONTROL_PLANE_STATE": "/chosen"}) == Path("/chosen")


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "A", "a" * 41, "a_b"])
def test_names_that_would_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(LocalError, match="cannot be a cluster's name"):
        cluster_folder(name)
