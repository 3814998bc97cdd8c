"""Programs beside a cluster live exactly as long as the cluster, whatever ends it."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocking_wait import until
from gpu_control_plane.local.identity import identify, is_alive
from gpu_control_plane.local.lifecycle import UpOptions, bring_down, bring_up, start_sidecar, stop_sidecar
from gpu_control_plane.local.progress import Quiet
from gpu_control_plane.local.sidecars import Sidecar
from gpu_control_plane.local.status import ComponentStatus, cluster_status

_WAIT = "import os, time; print(os.environ['KUBECONFIG'], os.environ.get('WORD'), flush=True); time.sleep(600)"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster that is up; its folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    bring_up(UpOptions(nodes=0), Quiet(), lambda _kubeconfig: [])
    yield tmp_path / "gpu-control-plane" / "gpu"
    bring_down("gpu", Quiet())


def waiter(word: str) -> Sidecar:
    return Sidecar(name="waiter", command=(sys.executable, "-c", _WAIT), environ={"WORD": word})


def shown() -> ComponentStatus | None:
    return next((each for each in cluster_status("gpu").components if each.name == "waiter"), None)


def test_a_sidecar_is_owned_restarted_replaced_and_ended_with_the_cluster(cluster: Path) -> None:
    log = start_sidecar("gpu", waiter("one"))
    until(lambda: f"{cluster}/kubeconfig one" in log.read_text())
    first = shown()
    assert first is not None
    assert first.ready

    os.kill(first.pid or 0, signal.SIGKILL)
    until(lambda: (now := shown()) and now.ready and now.pid != first.pid)
    again = shown()
    assert again is not None
    assert (again.restarts, again.last_exit) == (1, "killed by SIGKILL")
    deaths = (cluster / "logs" / "supervisor.log").read_text()
    assert "waiter ended: killed by SIGKILL" in deaths
    assert f"  {cluster}/kubeconfig one" in deaths.partition("waiter ended")[2]  # the last that it said

    start_sidecar("gpu", waiter("two"))
    until(lambda: f"{cluster}/kubeconfig two" in log.read_text())

    last = identify((shown() or first).pid or 0)
    supervisor = identify(cluster_status("gpu").supervisor_pid or 0)
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    # A child may be gone a moment before its owner is.
    until(lambda: not is_alive(last) and not is_alive(supervisor))
    bring_up(UpOptions(nodes=0), Quiet(), lambda _kubeconfig: [])
    until(lambda: (now := shown()) and now.ready)

    stop_sidecar("gpu", "waiter")
    until(lambda: shown() is None)
