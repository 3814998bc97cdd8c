"""A real Dex with one person, Alice, and two clients: the console, and the cluster whose tokens it may ask for."""

import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import msgspec

from blocking_wait import until
from gpu_control_plane.local import ensure_binaries
from gpu_control_plane.local.certificates import Authority
from gpu_control_plane.local.ports import LOOPBACK, free_port
from gpu_control_plane.local.processes import end, spawn

ALICE = "alice@example.com"
PASSWORD = "password"
CLIENT = "gpu-console"
SECRET = "not-a-secret-of-anybody"
_HASH = "$2a$10$2b2cU8CPhOTaGrs1HRQuAueS7JTT5ZHsHSzYiFPm1leZck7Mc8T4W"
"""Of the password."""


class Dex(msgspec.Struct, frozen=True):
    issuer: str
    authority: Path

    def api_server_flags(self) -> tuple[str, ...]:
        """By which an API server takes its tokens."""
        return (
            f"--oidc-issuer-url={self.issuer}",
            "--oidc-client-id=kubernetes",
            f"--oidc-ca-file={self.authority}",
            "--oidc-username-claim=email",
            "--oidc-username-prefix=dex:",
            "--oidc-groups-claim=groups",
            "--oidc-groups-prefix=dex:",
        )


@contextmanager
def running_dex(folder: Path, redirects: list[str]) -> Iterator[Dex]:
    port = free_port()
    authority = Authority(folder / "pki")
    pair = authority.server("dex", [LOOPBACK])
    issuer = f"https://{LOOPBACK}:{port}/dex"
    config = {
        "issuer": issuer,
        "storage": {"type": "memory"},
        "web": {"https": f"{LOOPBACK}:{port}", "tlsCert": str(pair.certificate), "tlsKey": str(pair.key)},
        "oauth2": {"skipApprovalScreen": True},
        "enablePasswordDB": True,
        "staticPasswords": [
            {"email": ALICE, "hash": _HASH, "username": "alice", "userID": "1", "groups": ["gpu-admins"]}
        ],
        "staticClients": [
            {"id": CLIENT, "secret": SECRET, "name": "Console", "redirectURIs": redirects},
            {"id": "kubernetes", "secret": "another", "name": "Cluster", "trustedPeers": [CLIENT]},
        ],
    }
    file = folder / "dex.json"
    file.write_bytes(msgspec.json.encode(config))
    with (folder / "dex.log").open("wb") as log:
        process = spawn([str(ensure_binaries(["dex"]).path("dex")), "serve", str(file)], output=log)
    try:
        dex = Dex(issuer, authority.pair.certificate)
        until(lambda: process.poll() is not None or _answers(dex), within=30)
        assert process.poll() is None, (folder / "dex.log").read_text()
        yield dex
    finally:
        end(process)


def _answers(dex: Dex) -> bool:
    context = ssl.create_default_context(cafile=str(dex.authority))
    try:
        with urllib.request.urlopen(f"{dex.issuer}/.well-known/openid-configuration", context=context) as answer:  # noqa: S310 - https only
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
