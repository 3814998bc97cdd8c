"""How the user of a kubeconfig authenticates: which of the given ways is used, and whom the user impersonates."""

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec
from multidict import CIMultiDict

from gpu_control_plane.kube.credentials import FileSource, bearer, read_file
from gpu_control_plane.kube.errors import ConfigError
from gpu_control_plane.kube.exec_plugin import VERSIONS, ClusterInfo, ExecSource
from gpu_control_plane.kube.kubeconfig import EXEC_EXTENSION, Cluster, Exec, User


def credential_source(
    cluster: Cluster, user: User, who: str, environ: Mapping[str, str], now: Callable[[], float]
) -> FileSource | ExecSource:
    """Chosen as kubectl does: given values win over a plugin, a token file over a token."""
    if user.auth_provider is not None:
        raise ConfigError(
            f'The {who} uses the auth-provider "{user.auth_provider.name}", which Kubernetes has removed. '
            "Use the exec plugin of your cloud instead."
        )
    certificate = user.client_certificate_data or (Path(user.client_certificate) if user.client_certificate else None)
    key = user.client_key_data or (Path(user.client_key) if user.client_key else None)
    if (certificate is None) != (key is None):
        there, missing = ("client-certificate", "client-key") if key is None else ("client-key", "client-certificate")
        raise ConfigError(f"The {who} has a {there} but no {missing}. Add it, as a file or as data.")
    has_token = bool(user.token or user.token_file)
    if has_token and user.username:
        raise ConfigError(f"The {who} has both a token and a username. Remove one of them.")
    if user.exec is not None and not (has_token or user.username or certificate is not None):
        _check_plugin(user.exec, who)
        return ExecSource(user.exec, cluster=_cluster_info(cluster, user.exec), environ=environ, now=now)
    return FileSource(
        authorization=_authorization(user, who),
        token_file=Path(user.token_file) if user.token_file else None,
        certificate=certificate,
        key=key,
        rereads=bool(
            user.token_file or isinstance(certificate, Path) or isinstance(key, Path) or authority_file(cluster)
        ),
        now=now,
    )


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to act as, whatever the kubeconfig says: kubectl's --as, --as-group and --as-uid."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str | None = None

    def instead_of(self, user: User) -> User:
        """The user of a kubeconfig, acting as this one."""
        return msgspec.structs.replace(
            user, as_user=self.user, as_groups=self.groups, as_uid=self.uid, as_user_extra=None
        )


def impersonation(user: User, who: str) -> CIMultiDict[str]:
    """The headers by which a user impersonates another; a header is repeated for several groups."""
    headers: CIMultiDict[str] = CIMultiDict()
    if not user.as_user:
        if user.as_uid or user.as_groups or user.as_user_extra:
            raise ConfigError(f"The {who} impersonates groups, a uid or extras without a user. Add as: NAME")
        return headers
    headers["Impersonate-User"] = user.as_user
    if user.as_uid:
        headers["Impersonate-Uid"] = user.as_uid
    for group in user.as_groups or ():
        headers.add("Impersonate-Group", group)
    for name, values in (user.as_user_extra or {}).items():
        for value in values:
            headers.add(f"Impersonate-Extra-{quote(name, safe='')}", value)
    return headers


def authority_file(cluster: Cluster) -> Path | None:
    """The file with the cluster's CA, unless the kubeconfig holds the CA itself, which wins."""
    if cluster.certificate_authority_data or not cluster.certificate_authority:
        return None
    return Path(cluster.certificate_authority)


def _authorization(user: User, who: str) -> str | None:
    if user.token:
        return bearer(user.token, who)
    if user.username:
        return "Basic " + base64.b64encode(f"{user.username}:{user.password or ''}".encode()).decode()
    return None


def _check_plugin(plugin: Exec, who: str) -> None:
    if plugin.api_version not in VERSIONS:
        raise ConfigError(
            f'The exec plugin of {who} has the apiVersion "{plugin.api_version}"; {" and ".join(VERSIONS)} '
            "are understood. Update the plugin and write its new version."
        )
    if not plugin.command:
        raise ConfigError(f"The exec plugin of {who} has no command. Name the program to run.")
    if plugin.interactive_mode is None and plugin.api_version == VERSIONS[0]:
        raise ConfigError(
            f"The exec plugin of {who} has no interactiveMode, which {VERSIONS[0]} requires. "
            "Add interactiveMode: IfAvailable"
        )


def _cluster_info(cluster: Cluster, plugin: Exec) -> ClusterInfo | None:
    if not plugin.provide_cluster_info:
        return None
    file = authority_file(cluster)
    authority = read_file(file, "certificate authority") if file else cluster.certificate_authority_data
    extensions = {extension.name: extension.extension for extension in cluster.extensions or ()}
    return ClusterInfo(
        server=cluster.server,
        tls_server_name=cluster.tls_server_name,
        insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
        certificate_authority_data=authority,
        proxy_url=cluster.proxy_url,
        config=extensions.get(EXEC_EXTENSION),
    )
