"""One API server with our CRDs for all tests of the console."""

import pytest

from gpu_control_plane.installation.crds import install_crds
from gpu_control_plane.local import Cluster


@pytest.fixture(scope="session")
def cluster(api_server: Cluster) -> Cluster:
    install_crds(api_server.kubeconfig)
    return api_server
