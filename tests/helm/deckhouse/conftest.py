"""The packed module."""

import pytest

from helm.chart import Helm
from helm.deckhouse.module import Module


@pytest.fixture(scope="session")
def module(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Module:
    return Module(helm, tmp_path_factory.mktemp("module") / "gpu-control-plane")
