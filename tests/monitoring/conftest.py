"""Prometheus and its tool from the distribution, and Helm."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from gpu_control_plane.local import ensure_binaries
from helm.chart import Helm


def cannot(why: str) -> NoReturn:
    """Skip with the reason; in CI that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        cannot(f"{name} is not installed: on Debian and Ubuntu it comes with `apt-get install prometheus`.")
    return Path(found)


@pytest.fixture(scope="session")
def promtool() -> Path:
    return _program("promtool")


@pytest.fixture(scope="session")
def prometheus() -> Path:
    return _program("prometheus")


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(ensure_binaries(["helm"]).path("helm"), tmp_path_factory.mktemp("helm-home"))
