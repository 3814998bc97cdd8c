"""Clusters that tests may break."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.local import Binaries, Cluster, Component, Settings, ensure_binaries

SMALL = (Component.ETCD, Component.APISERVER)


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return ensure_binaries([*Component, "kubectl"])


@pytest.fixture
def small_cluster(tmp_path: Path, binaries: Binaries) -> Iterator[Callable[..., Cluster]]:
    """Clusters of storage and API server alone, not started yet, and stopped at the end whatever happens."""
    made: list[Cluster] = []

    def make(folder: Path = tmp_path / "cluster", **settings: Any) -> Cluster:
        made.append(Cluster(folder, binaries, Settings(components=SMALL, **settings)))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()
