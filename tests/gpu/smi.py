"""`nvidia-smi`, asked for what it can tell about a card, so that what we say can be compared with it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library
from gpu_control_plane.agent.vendors.registry import container_driver_roots

SEARCH = DriverSearch(container_roots=container_driver_roots())
"""The host, and the file system of a driver container."""

_CUDA = re.compile(r"CUDA Version: (?P<version>[\d.]+)")
_PROFILE = re.compile(
    r"MIG (?P<name>\S+)\s+(?P<id>\d+)\s+(?P<free>\d+)/(?P<count>\d+)\s+(?P<gib>[\d.]+)\s+\S+\s+(?P<sms>\d+)"
)
_PLACES = re.compile(r"Profile ID\s+(?P<id>\d+) Placements?\s*:\s*\{(?P<starts>[\d,]+)\}:(?P<size>\d+)")


class NoCard(Exception):
    """There is no card to test on; the sentence says what is missing."""


class SmiProfile(msgspec.Struct, frozen=True):
    """A line of `nvidia-smi mig -lgip`, with its places from `-lgipp`."""

    name: str
    count: int
    gib: float
    starts: tuple[int, ...]
    size: int


class Smi:
    """Questions about the first card."""

    def __init__(self, program: Path, libraries: Path) -> None:
        self._program = program
        self._environ = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}

    def ask(self, *arguments: str) -> str:
        ran = subprocess.run(
            [str(self._program), *arguments],
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        if ran.returncode != 0:
            raise NoCard(f"nvidia-smi {' '.join(arguments)} failed: {ran.stdout.strip()} {ran.stderr.strip()}")
        return ran.stdout

    def query(self, *fields: str) -> dict[str, str]:
        """Fields of `--query-gpu`, as text without units."""
        answer = self.ask("--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        return dict(zip(fields, (value.strip() for value in answer.strip().split(",")), strict=True))

    def cuda_version(self) -> str:
        """The newest CUDA that the driver serves: told in the headline only."""
        found = _CUDA.search(self.ask())
        assert found
        return found["version"]

    def processes(self) -> list[int]:
        """The programs that compute on any card."""
        return [int(line) for line in self.ask("--query-compute-apps=pid", "--format=csv,noheader").split()]

    def profiles(self) -> list[SmiProfile]:
        """What the card could be cut into; asking changes nothing."""
        places = {found["id"]: found for found in _PLACES.finditer(self.ask("mig", "-i", "0", "-lgipp"))}
        return [
            SmiProfile(
                name=found["name"],
                count=int(found["count"]),
                gib=float(found["gib"]),
                starts=tuple(int(start) for start in places[found["id"]]["starts"].split(",")),
                size=int(places[found["id"]]["size"]),
            )
            for found in _PROFILE.finditer(self.ask("mig", "-i", "0", "-lgip"))
        ]


def find_smi() -> Smi:
    """On PATH, or beside the driver's libraries, wherever those are."""
    library = find_driver_library("libnvidia-ml.so.1", SEARCH.roots)
    if library is None:
        raise NoCard("needs a machine with an NVIDIA driver: there is no libnvidia-ml.so.1")
    named = shutil.which("nvidia-smi")
    program = Path(named) if named else library.parent.parent / "bin/nvidia-smi"
    if not program.exists():
        raise NoCard(f"needs nvidia-smi to compare with: neither on PATH nor at {program}")
    smi = Smi(program, library.parent)
    smi.query("uuid")
    return smi
