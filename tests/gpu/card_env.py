"""The agent with a real card on a real node, as it runs on every GPU machine."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv
from e2e.cluster_env import ClusterEnv
from gpu import image
from gpu.record import Record
from gpu.smi import SEARCH
from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library
from gpu_control_plane.api.gpudevice import GPUDevice, Hardware
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.local.images import write_archive

POOL = "training"
RESOURCE = f"{PREFIX}/{POOL}"


class CardEnv(AgentEnv):
    """An environment whose hardware is this machine's."""

    def __init__(self, cluster_env: ClusterEnv, card: Hardware, record: Record) -> None:
        super().__init__(cluster_env)
        self.hardware = card
        self.record = record
        self.validations = cluster_env.cluster.folder / "validations"

    @property
    def name(self) -> str:
        """The name of the card's GPUDevice."""
        return str(inventory_id(self.node.name, self.hardware.pci.address))

    @property
    def uuid_of_card(self) -> str:
        assert self.hardware.uuid is not None
        return self.hardware.uuid

    def start_agent(self, *options: str) -> None:
        self.agent = self._start(
            "agent",
            *("-m", "gpu_control_plane.agent", "--node", self.node.name, "--hardware", "real", "--labels"),
            *("--kubelet-folder", str(self.node.device_plugins.parent), "--cdi-folder", str(self.node.cdi)),
            *("--validations", str(self.validations), "--status-port", str(self._port), *options),
        )

    def published(self) -> dict[str, Any]:
        """The card's GPUDevice."""
        return self.cluster_env.read(GPUDevice.resource.path(name=self.name))

    def conditions(self) -> dict[str, str]:
        return {each["type"]: each["status"] for each in self.state().get("status", {}).get("conditions", [])}

    def users_of_card(self) -> list[str]:
        return [user["pod"] for user in self.published().get("status", {}).get("usedBy", [])]

    def import_python(self) -> None:
        """Make the image with Python known to the node."""
        driver = find_driver_library("libcuda.so.1", SEARCH.roots)
        assert driver is not None
        archive = self.cluster_env.cluster.folder / "python.tar"
        write_archive([image.python_image(driver)], archive)
        self.node.import_image(archive)

    def create_worker(self, name: str, resource: str = RESOURCE) -> None:
        """A pod that asks for a card, checks it and keeps it busy."""
        container = {
            "name": "main",
            "image": image.PYTHON,
            "command": image.command(self.uuid_of_card),
            "resources": {"limits": {resource: 1}},
        }
        # With no time to end in, a pod would be gone before its programs are.
        self.cluster_env.create_pod(
            name, containers=[container], restartPolicy="Never", terminationGracePeriodSeconds=10
        )

    def printed(self, pod: str) -> str:
        """What a pod has said so far; nothing before it runs."""
        started = self.cluster_env.pod(pod)["status"]["phase"] != "Pending"
        return self.cluster_env.kubectl("logs", pod) if started else ""

    def make_pool(self, name: str = POOL, **spec: Any) -> None:
        """A pool for cards of this product, none of which is approved yet."""
        spec = {"deviceSelector": {"include": {"products": [self.hardware.product]}}, **spec}
        pool = {"apiVersion": f"{PREFIX}/v1alpha1", "kind": "GPUPool", "metadata": {"name": name}, "spec": spec}
        self.cluster_env.kubectl("create", "-f", "-", given=json.dumps(pool))

    def approve(self, pool: str = POOL) -> None:
        self.cluster_env.kubectl("annotate", "gpudevice", self.name, f"{PREFIX}/assignment={pool}")

    def take_back(self) -> None:
        """Withdraw the approval, and wait until the card is in no pool."""
        self.cluster_env.kubectl("annotate", "gpudevice", self.name, f"{PREFIX}/assignment-")
        until(lambda: self.published()["status"]["state"] == "Unassigned")

    @property
    def port(self) -> int:
        """Where the agent tells its metrics."""
        return self._port

    def mean(self, histogram: str) -> float:
        """The mean of what a histogram of the agent has seen."""
        return self.metric(f"{histogram}_sum") / self.metric(f"{histogram}_count")

    def log(self, program: str) -> str:
        return (self.node.logs / f"{program}.log").read_text()

    def open_device_files(self) -> list[str]:
        """The driver's device files that the agent holds open."""
        return [target for target in self._open_files() if target.startswith("/dev/nvidia")]

    def _open_files(self) -> Iterator[str]:
        assert self.agent is not None
        for entry in Path(f"/proc/{self.agent.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                yield str(entry.readlink())


@contextlib.contextmanager
def card_scene(cluster_env: ClusterEnv, card: Hardware, record: Record) -> Iterator[CardEnv]:
    """Everything started, and the node ready for pools."""
    env = CardEnv(cluster_env, card, record)
    try:
        env.start_controller()
        with record.timed("agent started, node ReadyForPooling"):
            env.start_agent()
            until(lambda: cluster_env.find(GPUNodeState.resource.path(name=env.node.name)) is not None)
            until(lambda: env.conditions().get("ReadyForPooling") == "True", within=60)
        yield env
    finally:
        env.close()
