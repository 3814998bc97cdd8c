"""The agent releases the driver when a driver manager asks, so that its module could be unloaded."""

from pathlib import Path

from blocking_wait import until
from gpu.card_env import RESOURCE, CardEnv
from gpu.record import Record
from gpu.smi import Smi

_PAUSE = "nvidia.com/gpu.deploy.device-plugin"


def test_nothing_of_the_driver_is_held_while_it_is_paused(pooled: CardEnv, smi: Smi, record: Record) -> None:
    assert pooled.agent is not None
    maps = Path(f"/proc/{pooled.agent.pid}/maps")
    until(lambda: pooled.allocatable(RESOURCE) == 1)
    assert pooled.open_device_files(), "it holds the driver until it is asked to release it"
    assert "libnvidia-ml" in maps.read_text()

    with record.timed("asked to release the driver, done"):
        pooled.cluster_env.kubectl("label", "node", pooled.node.name, f"{_PAUSE}=paused-for-driver-upgrade")
        until(lambda: "quiesced" in pooled.state()["status"])
    assert pooled.open_device_files() == []
    assert "libnvidia" not in maps.read_text()
    assert smi.processes() == []
    pooled.wait_offered(RESOURCE, 0)

    with record.timed("allowed to take hold again, offered again"):
        pooled.cluster_env.kubectl("label", "node", pooled.node.name, f"{_PAUSE}-")
        pooled.wait_offered(RESOURCE, 1)
    assert "quiesced" not in pooled.state()["status"]
    assert pooled.open_device_files()
