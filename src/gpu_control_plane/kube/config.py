"""The address of the API server and the credentials for it: from a kubeconfig, or from the files every pod has.

Everything that can be checked without a network is checked while loading, and each fault is one sentence that
says what to do. Afterwards `Config.access` keeps tokens and certificates fresh.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from multidict import CIMultiDict, CIMultiDictProxy

from gpu_control_plane.kube.authentication import Impersonation, authority_file, credential_source, impersonation
from gpu_control_plane.kube.credentials import (
    Access,
    AccessMaker,
    Credentials,
    CredentialSource,
    FileSource,
    Identity,
    bearer,
    read_file,
)
from gpu_control_plane.kube.errors import ConfigError, CredentialsError, NoKubeconfig
from gpu_control_plane.kube.kubeconfig import Cluster, Kubeconfig, User, read_kubeconfig
from gpu_control_plane.kube.proxy import proxy_for
from gpu_control_plane.kube.tls import Trust

__all__ = ["Access", "Config", "Impersonation", "load_config"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Config:
    """One API server, one identity. Belongs to one event loop.

    `proxy` and `tls_server_name` go to aiohttp as `proxy=` and `server_hostname=`.
    """

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        *,
        namespace: str = "default",
        proxy: str | None = None,
        tls_server_name: str | None = None,
        others: AccessMaker | None = None,
    ) -> None:
        """`others` makes the access of those who bring a token of their own."""
        self.server = server.rstrip("/")
        self.namespace = namespace
        self.proxy = proxy
        self.tls_server_name = tls_server_name
        self._credentials = credentials
        self._others = others

    def with_token(self, token: str) -> "Config":
        """The same server for somebody else: with this token, and nothing by which we are known to it."""
        if self._others is None:
            raise ConfigError("This configuration was not made for several people.")
        source = FileSource(authorization=bearer(token, "person"), rereads=False)
        return Config(
            self.server,
            Credentials(source, self._others),
            namespace=self.namespace,
            proxy=self.proxy,
            tls_server_name=self.tls_server_name,
        )

    def impersonating(self, headers: CIMultiDict[str]) -> "Config":
        """The same server with our own credentials, on behalf of somebody else, whom `headers` name."""
        return _ImpersonatingConfig(self, headers)

    async def access(self) -> Access:
        """Headers and TLS for the next request; cheap while nothing changed. Raises `CredentialsError`."""
        return await self._credentials.current()

    def rejected(self, access: Access) -> None:
        """The server answered 401 to this access. The next `access()` fetches anew, once for all requests."""
        self._credentials.rejected(access)


class _ImpersonatingConfig(Config):
    """Credentials are those of the configuration below, however often they are renewed."""

    def __init__(self, own: Config, headers: CIMultiDict[str]) -> None:
        super().__init__(
            own.server,
            own._credentials,  # noqa: SLF001 - of the same class
            namespace=own.namespace,
            proxy=own.proxy,
            tls_server_name=own.tls_server_name,
        )
        self._headers = headers
        self._made: tuple[Access, Access] | None = None

    async def access(self) -> Access:
        own = await super().access()
        if self._made is None or self._made[0] is not own:
            headers = CIMultiDict(own.headers)
            headers.extend(self._headers)
            self._made = own, Access(CIMultiDictProxy(headers), own.ssl)
        return self._made[1]

    def rejected(self, access: Access) -> None:
        if self._made is not None and access is self._made[1]:
            super().rejected(self._made[0])


def load_config(
    path: Path | None = None,
    context: str | None = None,
    *,
    acting_as: Impersonation | None = None,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    now: Callable[[], float] = time.time,
) -> Config:
    """The configuration to use: `path`, else `$KUBECONFIG`, else a pod's own, else `~/.kube/config`.

    A `context` is looked for in kubeconfigs only. `acting_as` takes the place of whom a kubeconfig impersonates. Reads
    files; call it before the loop is busy.
    """
    try:
        return _load(path, context, acting_as, environ=environ, home=home, service_account=service_account, now=now)
    except CredentialsError as error:
        raise ConfigError(str(error)) from None


def _load(
    path: Path | None,
    context: str | None,
    acting_as: Impersonation | None,
    *,
    environ: Mapping[str, str],
    home: Path | None,
    service_account: Path,
    now: Callable[[], float],
) -> Config:
    if path is not None:
        kubeconfig = read_kubeconfig([path])
    elif paths := [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
        kubeconfig = read_kubeconfig(paths, skip_missing=True)
    elif context is None and _in_cluster(environ, service_account):
        return _from_pod(acting_as, environ, service_account, now)
    elif _exists(usual := _home(home) / ".kube" / "config"):
        kubeconfig = read_kubeconfig([usual])
    else:
        raise NoKubeconfig(
            f"There is no kubeconfig: $KUBECONFIG is not set, {usual} does not exist, and this is not a pod "
            "with a service account. Set KUBECONFIG to the file of your cluster."
        )
    return _from_kubeconfig(kubeconfig, context, acting_as, environ, now)


def _in_cluster(environ: Mapping[str, str], folder: Path) -> bool:
    return bool(
        environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT") and _exists(folder / "token")
    )


def _home(given: Path | None) -> Path:
    """A process in a container may have a user without a home."""
    try:
        return given or Path.home()
    except RuntimeError:
        return Path("/")


def _exists(path: Path) -> bool:
    """Like `Path.exists`, but false where the folder may not be read."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _from_pod(
    acting_as: Impersonation | None, environ: Mapping[str, str], folder: Path, now: Callable[[], float]
) -> Config:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace_file = folder / "namespace"
    namespace = read_file(namespace_file, "namespace").decode().strip() if _exists(namespace_file) else ""
    authority = folder / "ca.crt"
    proxy = proxy_for(server, None, environ)
    return _config(
        server,
        source=FileSource(token_file=folder / "token", now=now),
        maker=AccessMaker(
            Trust(
                authorities_origin=f"the certificate authority {authority}",
                https_proxy_host=_https_host(proxy),
            ),
            authority_file=authority,
            headers=impersonation(acting_as.instead_of(User()), "--as") if acting_as is not None else None,
        ),
        namespace=namespace or "default",
        proxy=proxy,
        now=now,
    )


def _from_kubeconfig(
    kubeconfig: Kubeconfig,
    context: str | None,
    acting_as: Impersonation | None,
    environ: Mapping[str, str],
    now: Callable[[], float],
) -> Config:
    cluster, user, chosen = kubeconfig.choose(context)
    if acting_as is not None:
        user = acting_as.instead_of(user)
    server = _checked_server(cluster, chosen.cluster, kubeconfig.origin)
    proxy = proxy_for(server, cluster.proxy_url, environ)
    maker = AccessMaker(
        _trust(cluster, chosen.cluster, kubeconfig.origin, proxy) if server.startswith("https://") else None,
        authority_file=authority_file(cluster),
        headers=impersonation(user, f'user "{chosen.user}" in {kubeconfig.origin}'),
    )
    return _config(
        server,
        source=credential_source(cluster, user, f'user "{chosen.user}" in {kubeconfig.origin}', environ, now),
        maker=maker,
        namespace=chosen.namespace or "default",
        proxy=proxy,
        tls_server_name=cluster.tls_server_name or None,
        now=now,
    )


def _config(
    server: str,
    *,
    source: CredentialSource,
    maker: AccessMaker,
    namespace: str,
    proxy: str | None,
    now: Callable[[], float],
    tls_server_name: str | None = None,
) -> Config:
    """What needs no plugin is read and checked at once: a bad file is found before the first request."""
    first = None
    if isinstance(source, FileSource):
        fetched = source.read()
        first = (fetched, maker.make(fetched.identity))
    else:
        maker.make(Identity())
    return Config(
        server,
        Credentials(source, maker, now=now, first=first),
        namespace=namespace,
        proxy=proxy,
        tls_server_name=tls_server_name,
        others=maker.without_identity(),
    )


def _checked_server(cluster: Cluster, name: str, origin: str) -> str:
    server = cluster.server.strip()
    if not server:
        raise ConfigError(
            f'Cluster "{name}" in {origin} has no server. Add it: kubectl config set-cluster {name} --server=https://…'
        )
    if not server.startswith(("https://", "http://")):
        raise ConfigError(
            f'The server of cluster "{name}" in {origin} is "{server}", without https:// or http:// in '
            f"front. Write https://{server.rpartition('://')[2]}"
        )
    try:
        parts = urlsplit(server)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(
            f'The server of cluster "{name}" in {origin} is "{server}", which is no address. '
            "Write it as https://host:port"
        )
    return server


def _trust(cluster: Cluster, name: str, origin: str, proxy: str | None) -> Trust:
    given = bool(cluster.certificate_authority or cluster.certificate_authority_data)
    if cluster.insecure_skip_tls_verify and given:
        raise ConfigError(
            f'Cluster "{name}" in {origin} has a certificate authority and insecure-skip-tls-verify, which '
            "exclude each other. Remove insecure-skip-tls-verify."
        )
    return Trust(
        authorities=cluster.certificate_authority_data or None,
        authorities_origin=f'the certificate authority of cluster "{name}" in {origin}',
        insecure=cluster.insecure_skip_tls_verify,
        https_proxy_host=_https_host(proxy),
    )


def _https_host(proxy: str | None) -> str | None:
    return urlsplit(proxy).hostname if proxy and proxy.startswith("https://") else None
