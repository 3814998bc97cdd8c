import pytest


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
