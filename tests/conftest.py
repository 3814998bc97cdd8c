"""What holds for all tests: how many examples are tried, and which."""

import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)
settings.register_profile("long", max_examples=2000, deadline=None)
if os.environ.get("CI") == "true":
    # The same examples each time: a change is judged by what it changed. Everybody else draws new ones.
    settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="replay one interleaving of the simulation")
    group.addoption("--interleavings", type=int, default=700, help="how many seeds each scenario tries")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """The seeds to try: one when replaying, else as many as asked for."""
    seed: int | None = request.config.getoption("--seed")
    if seed is not None:
        return range(seed, seed + 1)
    return range(request.config.getoption("--interleavings"))
