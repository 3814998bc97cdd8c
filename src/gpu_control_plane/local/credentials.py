"""Key pairs as files, and files that only their owner may read."""

import os
from pathlib import Path

import msgspec


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its private key, as files."""

    certificate: Path
    key: Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
