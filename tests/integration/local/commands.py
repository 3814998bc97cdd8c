"""`kubectl gpu` and `kubectl` as tests call them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_control_plane.local import cache_folder


class CommandLine:
    """`kubectl gpu`, run with a home folder of its own."""

    def __init__(self, home: Path, prefix: Sequence[str] = ()) -> None:
        self._home = home
        self._prefix = list(prefix)

    @property
    def folder(self) -> Path:
        return self._home / "gpu-control-plane" / "gpu"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environ = {
            **os.environ,
            "HOME": str(self._home),
            "XDG_STATE_HOME": str(self._home),
            "GPU_CONTROL_PLANE_CACHE": str(cache_folder()),
        }
        command = [*self._prefix, sys.executable, "-m", "gpu_control_plane.cli", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environ, cwd=self._home, stdout=pipe, stderr=pipe, text=True)

    def run(self, *arguments: str, timeout: float = 170) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def status(self) -> Any:
        return json.loads(self.run("status", "--local", "-o", "json").stdout)

    def pids(self) -> list[int]:
        """Everything that runs for the cluster."""
        status = self.status()
        return [status["supervisorPid"], *(component["pid"] for component in status["components"])]


class Kubectl:
    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._command = [str(program), "--kubeconfig", str(kubeconfig)]

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        ran = subprocess.run(
            [*self._command, *arguments], input=given, capture_output=True, text=True, check=False, timeout=150
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout
