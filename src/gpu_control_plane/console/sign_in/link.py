"""The address that signs the owner of a kubeconfig in: on their own machine, once.

Its token is in a file that nobody else can read. When it has been used there is a new one, so that the file always has
an address that works.
"""

import os
import secrets
from pathlib import Path

from gpu_control_plane.console.errors import NotSignedIn
from gpu_control_plane.console.identity import Person, read_own_person
from gpu_control_plane.kube.client import Client


class OneTimeLink:
    """Signs in whoever brings the token first."""

    def __init__(self, client: Client, file: Path | None) -> None:
        self._client = client
        self._file = file
        self._token = secrets.token_urlsafe(32)
        self._address = ""

    @property
    def url(self) -> str:
        return f"{self._address}?token={self._token}"

    def publish(self, address: str) -> None:
        """From now on the link is `address` with its token; the file says so."""
        self._address = address
        self._write()

    async def use(self, token: str) -> Person:
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            raise NotSignedIn("This link has been used already. Run the command that printed it for another one.")
        owner = await read_own_person(self._client)
        self._token = secrets.token_urlsafe(32)
        self._write()
        return owner

    def _write(self) -> None:
        if self._file is None:
            return
        new = self._file.with_name(f".{self._file.name}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{self.url}\n")
        new.replace(self._file)
