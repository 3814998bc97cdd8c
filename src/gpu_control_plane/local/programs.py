"""The programs a cluster is run with, once they are found."""

from pathlib import Path

import msgspec


class Binary(msgspec.Struct, frozen=True):
    """A program that can be run, and its version."""

    path: Path
    version: str


class Binaries(msgspec.Struct, frozen=True):
    """The programs of a cluster by name."""

    programs: dict[str, Binary]

    def __getitem__(self, program: str) -> Binary:
        return self.programs[program]

    def path(self, program: str) -> Path:
        return self.programs[program].path
