"""What is released: a version, and the commit whose time every artifact carries."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

PROJECT: Final = Path(__file__).parents[1]


class ReleaseError(Exception):
    """The release could not be made; the message says why and what to do."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    commit: str
    time: datetime
    """When the commit was made: what tools know as SOURCE_DATE_EPOCH."""

    @property
    def created(self) -> str:
        return f"{self.time:%Y-%m-%dT%H:%M:%SZ}"


def read_source(version: str, *, dirty: bool) -> Source:
    """The commit that is checked out. Changes that are in no commit are refused unless `dirty`: nobody could make the
    same artifacts again."""
    commit, seconds = _git("log", "-1", "--format=%H %ct").split()
    if not dirty and (changed := _git("status", "--porcelain").splitlines()):
        raise ReleaseError(
            f"{len(changed)} files differ from the commit, the first is {changed[0][3:]}. Commit them, or use --dirty "
            "for a trial."
        )
    return Source(version=version, commit=commit, time=datetime.fromtimestamp(int(seconds), UTC))


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", "-C", PROJECT, *arguments], capture_output=True, text=True, check=False)  # noqa: S607
    if ran.returncode:
        raise ReleaseError(f"A release is made from a git commit: {ran.stderr.strip()}")
    return ran.stdout.rstrip()
