"""Credentials from an exec plugin: runs the program, gives it the cluster's data it asks for, reads what it prints.

Implements the client side of `client.authentication.k8s.io` v1 and v1beta1. A plugin that hangs, prints nonsense or is
not installed ends in a `CredentialsError` with the end of what the plugin wrote to stderr.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from gpu_control_plane.kube.credentials import FetchedCredentials, Identity, bearer
from gpu_control_plane.kube.errors import CredentialsError
from gpu_control_plane.kube.kubeconfig import Exec, InteractiveMode
from gpu_control_plane.kube.tls import ClientCertificate

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

_LEEWAY_SECONDS = 60.0
_STDERR_TAIL_BYTES = 2000
_LONGEST_OUTPUT_BYTES = 1 << 20


class ClusterInfo(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, omit_defaults=True):
    """What a plugin with `provideClusterInfo` is told."""

    server: str
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    certificate_authority_data: bytes | None = None
    proxy_url: str | None = None
    config: object = None


class _Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    interactive: bool | None = None
    cluster: ClusterInfo | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    api_version: str
    kind: str = "ExecCredential"
    spec: _Spec


class _Status(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecSource:
    """A `CredentialSource` that runs a plugin. `terminal` says whether the plugin may ask a person."""

    def __init__(
        self,
        plugin: Exec,
        *,
        cluster: ClusterInfo | None = None,
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
        terminal: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty(),
        time_limit: float = 60.0,
        time_limit_interactive: float = 600.0,
    ) -> None:
        self._plugin = plugin
        self._cluster = cluster
        self._environ = environ
        self._now = now
        self._terminal = terminal
        self._time_limit = time_limit
        self._time_limit_interactive = time_limit_interactive

    async def fetch(self) -> FetchedCredentials:
        status = self._parse(await self._run())
        identity = Identity(
            authorization=bearer(status.token, f"exec plugin {self._plugin.command}") if status.token else None,
            certificate=self._certificate(status),
        )
        if status.expiration_timestamp is None:
            return FetchedCredentials(identity=identity)
        now, expires_at = self._now(), status.expiration_timestamp.timestamp()
        # Early enough for a request on its way, but never so early that a short-lived one is always due.
        leeway = min(_LEEWAY_SECONDS, max(expires_at - now, 0.0) / 5)
        return FetchedCredentials(
            identity=identity, renew_at=max(expires_at - leeway, now + 1.0), expires_at=expires_at
        )

    async def _run(self) -> bytes:
        plugin = self._plugin
        interactive = self._interactive()
        environ = {**self._environ, **{variable.name: variable.value for variable in plugin.env or ()}}
        environ["KUBERNETES_EXEC_INFO"] = self._request(interactive)
        command = shutil.which(plugin.command, path=environ.get("PATH"))
        if command is None:
            raise self._missing()
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *(plugin.args or ()),
                env=environ,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # In a session of its own the plugin and all it started can be ended together; but a person's
                # terminal would not be readable from there.
                start_new_session=not interactive,
            )
        except OSError as error:
            raise CredentialsError(
                f"The exec plugin {plugin.command} cannot be started ({error.strerror}). Check that it is a program."
            ) from None
        limit = self._time_limit_interactive if interactive else self._time_limit
        answer, stderr = bytearray(), bytearray()
        finished = False
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
                group.create_task(_keep_beginning(_stream(process.stdout), answer))
                group.create_task(_keep_end(_stream(process.stderr), stderr, shown=interactive))
                group.create_task(process.wait())
            finished = True
        except TimeoutError:
            raise self._failed(f"did not answer within {limit:g} s", stderr) from None
        finally:
            if not finished:
                await _end(process, whole_group=not interactive)
        if process.returncode:
            raise self._failed(f"failed with exit code {process.returncode}", stderr)
        return bytes(answer)

    def _interactive(self) -> bool:
        mode = self._plugin.interactive_mode or InteractiveMode.IF_AVAILABLE
        if mode is InteractiveMode.ALWAYS and not self._terminal():
            raise CredentialsError(
                f"The exec plugin {self._plugin.command} wants to ask a person, and there is no terminal. "
                "Run it from one, or use credentials that need no terminal."
            )
        return mode is not InteractiveMode.NEVER and self._terminal()

    def _request(self, interactive: bool) -> str:
        spec = _Spec(interactive=interactive, cluster=self._cluster if self._plugin.provide_cluster_info else None)
        return msgspec.json.encode(_Request(api_version=self._plugin.api_version, spec=spec)).decode()

    def _parse(self, output: bytes) -> _Status:
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._wrong(f"printed no ExecCredential ({error})") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            raise self._wrong(
                f'printed a "{answer.kind}" of "{answer.api_version}" where an ExecCredential of '
                f'"{self._plugin.api_version}" was asked for'
            )
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data or status.client_key_data):
            raise self._wrong("gave neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._wrong("gave a client certificate without its key, or a key without its certificate")
        return status

    def _certificate(self, status: _Status) -> ClientCertificate | None:
        if not status.client_certificate_data or not status.client_key_data:
            return None
        return ClientCertificate(
            certificate=status.client_certificate_data.encode(),
            key=status.client_key_data.encode(),
            origin=f"the client certificate from the exec plugin {self._plugin.command}",
        )

    def _missing(self) -> CredentialsError:
        hint = (self._plugin.install_hint or "Install it.").strip()
        return CredentialsError(f"The exec plugin {self._plugin.command} is not installed. {hint}")

    def _wrong(self, what: str) -> CredentialsError:
        return CredentialsError(f"The exec plugin {self._plugin.command} {what}. Run it by hand to see its answer.")

    def _failed(self, what: str, stderr: bytes | bytearray) -> CredentialsError:
        text = stderr.decode("utf-8", "replace").strip()
        detail = f", saying: {text}" if text else " and said nothing."
        return CredentialsError(f"The exec plugin {self._plugin.command} {what}{detail}")


def _stream(reader: asyncio.StreamReader | None) -> asyncio.StreamReader:
    if reader is None:
        raise RuntimeError("the plugin was started without a pipe")
    return reader


async def _keep_beginning(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while chunk := await stream.read(65536):
        kept += chunk[: _LONGEST_OUTPUT_BYTES - len(kept)]


async def _keep_end(stream: asyncio.StreamReader, kept: bytearray, *, shown: bool) -> None:
    """A person who is being asked (to open a page, to touch a key) has to see it at once."""
    while chunk := await stream.read(65536):
        kept += chunk
        del kept[:-_STDERR_TAIL_BYTES]
        if shown:
            sys.stderr.write(chunk.decode("utf-8", "replace"))
            sys.stderr.flush()


async def _end(process: asyncio.subprocess.Process, *, whole_group: bool) -> None:
    """Kill what is left of a plugin and wait until nothing of it is open any more."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.communicate(), 1.0)
