"""The agent with orders given by hand: everything but pools runs, so that a test says exactly what is ordered."""

from collections.abc import Iterator

import pytest

from e2e.agent.scene import AgentScene, scene_on
from e2e.stage import Stage


@pytest.fixture(scope="module")
def scene(stage: Stage) -> Iterator[AgentScene]:
    with scene_on(stage, without=("pools",)) as scene:
        yield scene
