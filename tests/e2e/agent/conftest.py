"""The agent with orders given by hand: everything but pools runs, so that a test says exactly what is ordered."""

from collections.abc import Iterator

import pytest

from e2e.agent.agent_env import AgentEnv, agent_env_on
from e2e.cluster_env import ClusterEnv


@pytest.fixture(scope="module")
def env(cluster_env: ClusterEnv) -> Iterator[AgentEnv]:
    with agent_env_on(cluster_env, without=("pools",)) as env:
        yield env
