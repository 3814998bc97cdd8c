"""The kubeconfig file: its shape, and how several of them become one, by kubectl's rules.

Paths inside are made absolute while it is still known which file they came from. What the parts mean for a
connection is decided in `config`.
"""

import contextlib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from gpu_control_plane.kube.errors import ConfigError

EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class NamedExtension(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """Opaque data some other program left; only an exec plugin's is ever read, and passed on as it is."""

    name: str
    extension: object = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    server: str = ""
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    certificate_authority: str | None = None
    certificate_authority_data: bytes | None = None
    proxy_url: str | None = None
    extensions: tuple[NamedExtension, ...] | None = None


class InteractiveMode(StrEnum):
    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A program that prints credentials (KEP-541)."""

    api_version: str
    command: str
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: InteractiveMode | None = None


class AuthProvider(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    client_certificate: str | None = None
    client_certificate_data: bytes | None = None
    client_key: str | None = None
    client_key_data: bytes | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    as_user: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: tuple[str, ...] | None = None
    as_user_extra: dict[str, tuple[str, ...]] | None = None
    exec: Exec | None = None
    auth_provider: AuthProvider | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    user: User | None = None


class _NamedContext(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    context: Context = Context()


class _File(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    current_context: str | None = None
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None


class Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """One or several files, merged; `origin` is how messages call them."""

    origin: str
    current_context: str | None
    clusters: dict[str, Cluster]
    users: dict[str, User]
    contexts: dict[str, Context]

    def choose(self, context: str | None) -> tuple[Cluster, User, Context]:
        """The cluster, user and context to use, by the context's name or the current one."""
        name = context or self.current_context
        if not name:
            raise ConfigError(
                f"{self.origin} has no current context; {self._contexts()}. Choose one: kubectl config use-context NAME"
            )
        chosen = self.contexts.get(name)
        if chosen is None:
            raise ConfigError(f'There is no context "{name}" in {self.origin}; {self._contexts()}. Name one of them.')
        cluster = self.clusters.get(chosen.cluster)
        if cluster is None:
            raise ConfigError(
                f'Context "{name}" in {self.origin} names the cluster "{chosen.cluster}", which is not '
                "defined there. Add it: kubectl config set-cluster"
            )
        if not chosen.user:
            return cluster, User(), chosen
        user = self.users.get(chosen.user)
        if user is None:
            raise ConfigError(
                f'Context "{name}" in {self.origin} names the user "{chosen.user}", which is not '
                "defined there. Add it: kubectl config set-credentials"
            )
        return cluster, user, chosen

    def _contexts(self) -> str:
        return f"it has {', '.join(sorted(self.contexts))}" if self.contexts else "it has no contexts at all"


def read_kubeconfig(paths: Sequence[Path], *, skip_missing: bool = False) -> Kubeconfig:
    """Read and merge: of two entries with one name the first file's counts."""
    files = [file for path in paths if (file := _read(path, skip_missing=skip_missing)) is not None]
    origin = ", ".join(str(path) for path in paths)
    if not files:
        raise ConfigError(f"There is no kubeconfig at {origin}. Create it, or name another one.")
    return Kubeconfig(
        origin=origin,
        current_context=next((file.current_context for file in files if file.current_context), None),
        clusters=_first_wins((entry.name, entry.cluster) for file in files for entry in file.clusters or ()),
        users=_first_wins((entry.name, entry.user or User()) for file in files for entry in file.users or ()),
        contexts=_first_wins((entry.name, entry.context) for file in files for entry in file.contexts or ()),
    )


def _first_wins[T](entries: Iterable[tuple[str, T]]) -> dict[str, T]:
    merged: dict[str, T] = {}
    for name, value in entries:
        merged.setdefault(name, value)
    return merged


def _read(path: Path, *, skip_missing: bool) -> _File | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if skip_missing:
            return None
        raise ConfigError(f"There is no kubeconfig at {path}. Create it, or name another one.") from None
    except OSError as error:
        raise ConfigError(
            f"The kubeconfig {path} cannot be read ({error.strerror}). Check what it is and who may read it."
        ) from None
    if content.startswith(b"{"):  # JSON is YAML, too
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            return _with_absolute_paths(msgspec.json.decode(content, type=_File), path.parent.absolute())
    import yaml  # noqa: PLC0415 - large, and a pod has no kubeconfig

    from gpu_control_plane.kube.written_yaml import BadYAML, check_levels  # noqa: PLC0415 - it needs yaml

    try:
        check_levels(content)
        document = yaml.load(content, yaml.CSafeLoader) or {}
        file = msgspec.convert(document, _File)
    except BadYAML as error:
        raise ConfigError(f"The kubeconfig {path} cannot be read. {error} Correct it there.") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"The kubeconfig {path} is not YAML: {error.problem}{line}. Correct it there.") from None
    except yaml.YAMLError:
        raise ConfigError(f"The kubeconfig {path} is not YAML but something binary. Name another file.") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"The kubeconfig {path} has a wrong field: {error}. Correct it there.") from None
    return _with_absolute_paths(file, path.parent.absolute())


def _with_absolute_paths(file: _File, folder: Path) -> _File:
    def absolute(path: str | None) -> str | None:
        return str(folder / path) if path else None

    def cluster(entry: _NamedCluster) -> _NamedCluster:
        authority = absolute(entry.cluster.certificate_authority)
        return msgspec.structs.replace(
            entry, cluster=msgspec.structs.replace(entry.cluster, certificate_authority=authority)
        )

    def user(entry: _NamedUser) -> _NamedUser:
        if entry.user is None:
            return entry
        plugin = entry.user.exec
        if plugin is not None and "/" in plugin.command:
            plugin = msgspec.structs.replace(plugin, command=str(folder / plugin.command))
        return msgspec.structs.replace(
            entry,
            user=msgspec.structs.replace(
                entry.user,
                client_certificate=absolute(entry.user.client_certificate),
                client_key=absolute(entry.user.client_key),
                token_file=absolute(entry.user.token_file),
                exec=plugin,
            ),
        )

    return msgspec.structs.replace(
        file,
        clusters=tuple(cluster(entry) for entry in file.clusters or ()),
        users=tuple(user(entry) for entry in file.users or ()),
    )
