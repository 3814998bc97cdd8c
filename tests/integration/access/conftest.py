"""One API server with the admission policies for all tests here: dry runs leave no trace."""

from collections.abc import Iterator

import pytest

from gpu_control_plane.local import Cluster, Settings, ensure_binaries
from integration.access.env import RIGHTS, AccessEnv
from integration.conftest import CONTROL_PLANE


@pytest.fixture(scope="session")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessEnv]:
    folder = tmp_path_factory.mktemp("access")
    with Cluster(folder, ensure_binaries(CONTROL_PLANE), Settings(components=CONTROL_PLANE)) as cluster:
        env = AccessEnv(cluster)
        try:
            for path, body in RIGHTS:
                assert env.request("POST", path, body).admitted
            env.prepare()
            yield env
        finally:
            env.close()
