"""Which tests run on one worker, one after the other, and in which order: `make test` is bound by the processor.

Starting an API server costs as much as fifty unit tests, and one that idles costs a little all the time. So tests that
share a cluster stay on one worker, tests without a cluster come first, and of the others the long ones begin early, so
that no worker is left alone with them at the end.
"""

from typing import Final

import pytest

_SHARING: Final = {
    "integration/stack": "stack",
    "integration/access": "access",
    "integration/console": "console",
    "integration/agent": "simulated nodes",
    "integration/operator": "api server 1",
    "integration/burnin": "api server 1",
    "integration/discovery": "api server 1",
    "integration/kube": "api server 2",
    "integration/inventory": "api server 2",
    "integration/api": "api server 3",
    "integration/bootstrap": "api server 3",
    "integration/ray": "api server 4",
    "helm/deckhouse": "tests/helm/test_dry_runs.py",
}
"""Folders whose tests share a cluster, and which cluster."""
_FIRST: Final = ("unit", "simulation", "integration/stack", "integration/flow", "integration/local", "e2e")
"""Folders in the order in which they begin; all others follow."""


def scope(nodeid: str) -> str:
    """What must run on one worker with a test: its module, or all that share its cluster."""
    module = nodeid.split("::", 1)[0]
    return _SHARING.get(_folder(module), module)


def rank(item: pytest.Item) -> int:
    """When a test runs, by its folder."""
    module = item.nodeid.split("::", 1)[0].removeprefix("tests/")
    return next((number for number, folder in enumerate(_FIRST) if module.startswith(f"{folder}/")), len(_FIRST))


def cluster_scheduling(config: pytest.Config, log: object) -> object:
    """Gives each worker one scope after the other, in the order of collection."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - where tests of a real card run, there is no xdist

    class ClusterScheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return ClusterScheduling(config, log)


def _folder(module: str) -> str:
    return "/".join(module.removeprefix("tests/").split("/")[:2])
