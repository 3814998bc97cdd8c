"""Cards and pods of tests of the console."""

import itertools
import os
from collections.abc import Sequence

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.kube import Client

_NUMBERS = itertools.count()


async def a_card(client: Client, users: Sequence[tuple[str, str]] = ()) -> GPUDevice:
    """A card; `users` are namespace and name of pods that hold a unit each."""
    node = f"console-{os.getpid()}-{next(_NUMBERS)}"
    name = f"{node}-0000-18-00-0"
    body = {"metadata": {"name": name}, "spec": {"nodeName": node, "pciAddress": "0000:18:00.0"}}
    made = await client.create(GPUDevice, body)
    if not users:
        return made
    used_by = [
        {"namespace": namespace, "pod": pod, "container": "main", "resource": "gpu.deckhouse.io/training", "units": 1}
        for namespace, pod in users
    ]
    return await client.patch(GPUDevice, name, {"status": {"usedBy": used_by}}, subresource="status")


async def a_waiting_pod(client: Client, namespace: str, name: str) -> WaitingPod:
    container = {"name": "main", "image": "example/train", "resources": {"limits": {"gpu.deckhouse.io/training": "1"}}}
    return await client.create(
        WaitingPod,
        {"metadata": {"name": name}, "spec": {"containers": [container], "automountServiceAccountToken": False}},
        namespace,
    )
