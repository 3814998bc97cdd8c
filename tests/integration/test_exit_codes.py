"""Every process that needs a kind which the API server does not serve says so and fails; a Job that is tried again, or
a container that is restarted, then finds it."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpu_control_plane.local import Cluster

DRIVER = '{"kind":"NVIDIADriver","metadata":{"name":"a"},"spec":{}}'


async def test_every_process_fails_where_the_crds_are_missing(
    own_api_server: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(own_api_server)
    folders = (f"--{name}-folder={tmp_path}" for name in ("kubelet", "cdi", "device"))
    processes = {
        "controller": ("gpu_control_plane.controller", "--status-port=0"),
        "agent": ("gpu_control_plane.agent", "--hardware=simulated", "--node=a", *folders),
        "discovery": ("gpu_control_plane.agent", "--discover"),
        "simulated agents": ("gpu_control_plane.agent", "--simulated"),
        "declare": ("gpu_control_plane.installation.declare", DRIVER),
    }
    ends = await asyncio.gather(*(_end(cluster.kubeconfig, *command) for command in processes.values()))
    for process, (code, said) in zip(processes, ends, strict=True):
        sentences = [line for line in said.splitlines() if not line.startswith("{")]
        assert (process, code, len(sentences)) == (process, 1, 1), said
        assert "CRD" in sentences[0]


async def _end(kubeconfig: Path, *arguments: str) -> tuple[int | None, str]:
    """How a program ends, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *arguments),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, said.decode()
