"""A real card, a real cluster around it, and a record of everything that was compared and measured.

Run by `make test-gpu` alone, which sets GPU_TEST_REAL: `make test` touches no card, even where there is one.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.agent.agent_env import settle
from e2e.cluster_env import ClusterEnv
from e2e.conftest import binaries, pytest_runtest_makereport, start_cluster_env  # noqa: F401 - fixtures and a hook, as they are there
from gpu.card_env import RESOURCE, CardEnv, card_scene
from gpu.record import Record
from gpu.smi import SEARCH, NoCard, Smi, find_smi
from gpu_control_plane.agent.backends.interface import Backend
from gpu_control_plane.agent.vendors.nvidia.nvml import NVMLBackend
from gpu_control_plane.agent.vendors.registry import open_backend
from gpu_control_plane.api.gpudevice import Hardware

_RECORD = pytest.StashKey[Record]()
_FILE = Path("build/gpu/record.json")


def pytest_ignore_collect() -> bool | None:
    return None if os.environ.get("GPU_TEST_REAL") == "1" else True


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RECORD] = Record()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    record = config.stash[_RECORD]
    if record.empty:
        return
    record.write(_FILE)
    terminalreporter.section("on this card")
    terminalreporter.write_line(record.text())


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Record:
    return pytestconfig.stash[_RECORD]


@pytest.fixture(autouse=True, scope="session")
def smi() -> Smi:
    """The driver's own tool, the judge of all we say. Without it there is no card to test on."""
    try:
        return find_smi()
    except NoCard as why:
        pytest.skip(str(why))


@pytest.fixture
def backend(smi: Smi) -> Iterator[Backend]:
    """The backend in this process, beside the agent's own."""
    with _opened() as backend:
        yield backend


@pytest.fixture(scope="session")
def card(smi: Smi) -> Hardware:
    """The first card. The tests take one card, whatever else the machine has."""
    with _opened() as backend:
        return backend.cards()[0]


@contextlib.contextmanager
def _opened() -> Iterator[Backend]:
    backend = open_backend(SEARCH)
    assert isinstance(backend, NVMLBackend), f"the driver does not answer: {getattr(backend, 'reason', '')}"
    with contextlib.closing(backend):
        yield backend


@pytest.fixture(scope="session")
def cluster_env(smi: Smi, start_cluster_env: Callable[..., ClusterEnv], record: Record) -> ClusterEnv:  # noqa: F811 - a fixture, asked for
    """A cluster with one real node, the machine with the card."""
    with record.timed("cluster up, node Ready"):
        return start_cluster_env("gpu-node")


@pytest.fixture(scope="session")
def env(cluster_env: ClusterEnv, card: Hardware, record: Record) -> Iterator[CardEnv]:
    """The agent with the real card, and every controller."""
    with card_scene(cluster_env, card, record) as env:
        yield env


@pytest.fixture(scope="session")
def pooled(env: CardEnv, record: Record) -> CardEnv:
    """The environment with its card in a pool, approved by a person, and an image for pods to compute with."""
    with record.timed("image with Python made and imported"):
        env.import_python()
    env.make_pool()
    settle(1)
    assert env.allocatable(RESOURCE) == 0, "nothing is allocatable before a person has approved it"
    with record.timed("approval to allocatable"):
        env.approve()
        env.wait_offered(RESOURCE, 1)
    return env
