"""The options that say which cluster, as whom and in which namespace: kubectl passes plugins none of its own, so every
command takes them here."""

import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpu_control_plane.cli import names

if TYPE_CHECKING:
    from gpu_control_plane.kube.client import Client

SYSTEM_NAMESPACE_VARIABLE = "GPU_SYSTEM_NAMESPACE"
"""For people who may not read the ClusterRoleBinding that names it."""
_DEFAULT = "[default: as kubectl has it]"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A cluster, somebody to be there, and a namespace to look at."""

    kubeconfig: Path | None = None
    context: str | None = None
    acting_as: str | None = None
    groups: tuple[str, ...] = ()
    uid: str | None = None
    namespace: str | None = None
    """As given with -n; `namespace_in` has the one to use."""
    all_namespaces: bool = False
    system_namespace: str | None = None
    """As given with --system-namespace; `system_namespace_in` has the one to use."""

    def run[T](self, work: "Callable[[Client], Coroutine[Any, Any, T]]") -> T:
        """Do the work with a client of the cluster. Errors are those of `kube.errors`."""
        import asyncio  # noqa: PLC0415

        async def connected() -> T:
            async with self.client() as client:
                return await work(client)

        return asyncio.run(connected())

    def client(self) -> "Client":
        from gpu_control_plane.kube.client import Client  # noqa: PLC0415
        from gpu_control_plane.kube.config import Impersonation, load_config  # noqa: PLC0415

        acting_as = None
        if self.acting_as is not None:
            acting_as = Impersonation(user=self.acting_as, groups=self.groups, uid=self.uid)
        return Client(load_config(self.kubeconfig, self.context, acting_as=acting_as))

    def namespace_in(self, client: "Client") -> str | None:
        """The namespace to look at, as kubectl chooses it; None for all of them."""
        return None if self.all_namespaces else self.namespace or client.config.namespace

    async def system_namespace_in(self, client: "Client") -> str:
        """The namespace of our own programs: as it was given, else as the cluster says."""
        from gpu_control_plane.installation.own_namespace import own_namespace  # noqa: PLC0415

        return self.system_namespace or await own_namespace(client)


def connected(
    *, namespace: str | None = None, all_namespaces: bool = False, system_namespace: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options to a command, which takes them as `connection`. `namespace` is the help of -n, for commands that
    have one; with `all_namespaces` there is -A, too. With `system_namespace` people can say where our programs run."""
    options = [
        click.option(
            "--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help=f"Which cluster.  {_DEFAULT}"
        ),
        click.option(
            "--context", metavar="NAME", shell_complete=names.contexts, help="Which context of the kubeconfig."
        ),
        click.option("--as", "acting_as", metavar="USER", help="Act as this user, where you may."),
        click.option("--as-group", "groups", metavar="GROUP", multiple=True, help="And in this group; repeat it."),
        click.option("--as-uid", "uid", metavar="UID", help="And with this uid."),
    ]
    if namespace is not None:
        options.append(
            click.option(
                "-n", "--namespace", metavar="NS", shell_complete=names.namespaces, help=f"{namespace}  {_DEFAULT}"
            )
        )
    if all_namespaces:
        options.append(click.option("-A", "--all-namespaces", is_flag=True, help="In every namespace."))
    if system_namespace:
        options.append(
            click.option(
                "--system-namespace",
                metavar="NS",
                envvar=SYSTEM_NAMESPACE_VARIABLE,
                help="Where the GPU control plane runs, if the cluster does not tell you.",
                show_envvar=True,
            )
        )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(*args: Any, **given: Any) -> None:
            fields = Connection.__dataclass_fields__.keys() & given.keys()
            connection = Connection(**{name: given.pop(name) for name in fields})
            if (connection.groups or connection.uid) and connection.acting_as is None:
                raise click.UsageError("--as-group and --as-uid need --as: name the user, too.")
            if connection.all_namespaces and connection.namespace:
                raise click.UsageError("-A is every namespace, and -n is one: leave one of them out.")
            return function(*args, connection=connection, **given)

        for option in reversed(options):
            command = option(command)
        return command

    return decorate
