import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from unit.agent.kubelet.kubelet import FakeKubelet


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for sockets; pytest's own have paths that are too long for them."""
    with tempfile.TemporaryDirectory(prefix="dp-") as path:
        yield Path(path)


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[FakeKubelet]:
    """A kubelet that has not been started."""
    kubelet = FakeKubelet(folder)
    yield kubelet
    await kubelet.kill()
