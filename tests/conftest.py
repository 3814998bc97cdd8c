"""What holds for all tests: how many examples are tried, and which, and that Ctrl-C is heard."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from scheduling import cluster_scheduling, rank

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("usual", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("usual"), derandomize=True)
settings.register_profile("quick", settings.get_profile("usual"), max_examples=10)
settings.register_profile("long", settings.get_profile("usual"), max_examples=2000)
# In CI the same examples each time: a change is judged by what it changed. Everybody else draws new ones.
settings.load_profile("ci" if os.environ.get("CI") == "true" else "usual")

# A shell lets its background jobs ignore Ctrl-C, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# And nohup lets everything ignore a hang-up, by which some programs reread their configuration.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="replay one interleaving of the simulation")
    group.addoption("--interleavings", type=int, default=700, help="how many seeds each scenario tries")
    group.addoption("--histories", type=int, default=5000, help="how many random histories of a node are played")
    group.addoption("--sandbox-losses", type=int, default=3, help="how often init containers are made to run again")
    group.addoption("--reviews", type=int, default=2000, help="how many random AdmissionReviews are answered")
    group.addoption("--steps", type=int, default=1000, help="how long the random history on a real cluster is")
    group.addoption("--clients", type=int, default=0, help="how many real clients come back after a real outage")
    group.addoption("--real-ray", action="store_true", help="run the long stories with real Ray, too")
    parser.addoption("--screenshots", action="store_true", help="take the pictures in docs/images anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    return cluster_scheduling(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """The seeds to try: one when replaying, else as many as asked for."""
    seed: int | None = request.config.getoption("--seed")
    if seed is not None:
        return range(seed, seed + 1)
    return range(request.config.getoption("--interleavings"))


@pytest.fixture
def histories(request: pytest.FixtureRequest) -> int:
    """How many random histories of a node are played."""
    number: int = request.config.getoption("--histories")
    return number
