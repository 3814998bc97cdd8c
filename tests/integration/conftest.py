"""A real API server for every test here, started once; tests that break it start one of their own."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from gpu_control_plane.kube import Client, Object, Resource, load_config
from gpu_control_plane.local import Cluster, Component, Settings, ensure_binaries

CONTROL_PLANE = (Component.ETCD, Component.APISERVER)


class Namespace(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The API server all tests share; each works in a namespace of its own."""
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, ensure_binaries(CONTROL_PLANE), Settings(components=CONTROL_PLANE)) as cluster:
        yield cluster


@pytest.fixture
def own_api_server(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start an API server that the test may stop, kill or configure as it likes."""
    started: list[Cluster] = []

    def start(*flags: str) -> Cluster:
        settings = Settings(components=CONTROL_PLANE, flags={Component.APISERVER: flags})
        cluster = Cluster(tmp_path / f"cluster-{len(started)}", ensure_binaries(CONTROL_PLANE), settings)
        started.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in started:
        cluster.stop()


@pytest.fixture
async def client(api_server: Cluster) -> AsyncIterator[Client]:
    """An administrator's client."""
    async with Client(load_config(api_server.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(client: Client) -> str:
    """A new namespace. It stays behind: the server goes with the test session."""
    made = await client.create(Namespace, {"metadata": {"generateName": f"test-{secrets.token_hex(2)}-"}})
    return made.name
