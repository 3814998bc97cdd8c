"""Burn-in of new cards is off unless the values ask for it, and then as long as they say."""

from typing import Any

import pytest

from gpu_control_plane.agent.command_line import agent
from helm.chart import Helm, container

_FLAG = "--burn-in"


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        ({}, []),
        ({"agent": {"burnIn": {"seconds": 600}}}, []),
        ({"agent": {"burnIn": {"enabled": True}}}, ["--burn-in", "--burn-in-seconds=60"]),
        ({"agent": {"burnIn": {"enabled": True, "seconds": 86400}}}, ["--burn-in", "--burn-in-seconds=86400"]),
    ],
    ids=["by default", "off", "on", "for a day"],
)
def test_the_agent_gets_the_arguments(helm: Helm, values: dict[str, Any], arguments: list[str]) -> None:
    given = container(helm.objects(values).pod("agent"))["args"]
    assert [each for each in given if each.startswith(_FLAG)] == arguments
    with agent.make_context("agent", list(given)):
        pass
