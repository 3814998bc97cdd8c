"""`kubectl gpu gitops`: Argo CD Applications from values of the upstream charts."""

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.values_file import read_values

if TYPE_CHECKING:
    from gpu_control_plane.gitops.render import ValuesFile

_EXAMPLES = """\b
Examples:
  kubectl gpu gitops render clusters/prod --registry registry.example.com/gpu \\
    --repository https://git.example.com/infra.git --gpu-operator gpu-operator/ap-values.yaml
"""
_KUBERAY: Final = "applications/kuberay-operator.yaml"
_KEEP_THE_CRDS: Final = """\
{file} is not needed any more, and removing it now would have Argo CD delete KubeRay's CRDs, and with them every
RayCluster, RayJob and RayService. Let Argo CD forget KubeRay without deleting anything, hand Ray over, and remove the
file yourself; then run this command again:
  kubectl -n {namespace} patch application kuberay-operator --type=merge -p '{{"metadata":{{"finalizers":null}}}}'
  git rm {file} && git commit && git push        # Argo CD removes the Application alone
  kubectl gpu migrate ray take-over
To keep KubeRay's operator instead: --keep-kuberay."""
_REGISTRY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[A-Za-z0-9._-]+)*")
_REPOSITORY: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/]\S*|([^\s@/:]+@)?[^\s@/:]+:(?!//)\S+")
"""A URL, or a host and a path as scp writes them."""
_file = click.File("rb")


def _registry(_context: click.Context, _option: click.Parameter, given: str) -> str:
    """Without a scheme: the chart's is OCI, and an image has none."""
    registry = given.removeprefix("oci://").rstrip("/")
    if not _REGISTRY.fullmatch(registry):
        raise click.BadParameter(f"{given!r} is no host with a path: write it as registry.example.com/gpu.")
    return registry


def _repository(_context: click.Context, _option: click.Parameter, given: str) -> str:
    if not _REPOSITORY.fullmatch(given):
        raise click.BadParameter(
            f"{given!r} is no address that Argo CD could fetch from: write it as https://git.example.com/infra.git or "
            "git@git.example.com:infra.git."
        )
    return given


@click.group("gitops", short_help="Argo CD Applications from values of the upstream charts.", epilog=_EXAMPLES)
def command() -> None:
    """Write the Applications by which Argo CD installs the stack and Ray, from values files that you keep in git.

    The files have the keys of NVIDIA's gpu-operator chart and of kuberay-operator. A key that would have no effect is
    refused by its name.
    """


@command.command("render")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--registry",
    required=True,
    callback=_registry,
    help="Where the release was pushed: the image, and the chart in charts/.",
)
@click.option(
    "--repository", required=True, metavar="URL", callback=_repository, help="The git repository that FOLDER is in."
)
@click.option("--path", help="FOLDER, seen from the root of the repository.  [default: FOLDER itself]")
@click.option("--revision", default="HEAD", show_default=True, help="Branch or tag that Argo CD follows.")
@click.option("--gpu-operator", type=_file, metavar="FILE", help="Values of NVIDIA's gpu-operator chart.")
@click.option("--values", "ours", type=_file, metavar="FILE", help="Values of our own chart; they win.")
@click.option("--kuberay", type=_file, metavar="FILE", help="Values of the kuberay-operator chart.")
@click.option(
    "--keep-kuberay",
    is_flag=True,
    help="Install KubeRay's own operator with them, instead of having ours look after Ray.",
)
@click.option("--ignore", multiple=True, metavar="KEY", help="A key that may be left out. May be repeated.")
@click.option(
    "-n", "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where the control plane will run."
)
@click.option("--project", default="default", show_default=True, help="Project of the Applications.")
@click.option("--argocd-namespace", default="argocd", show_default=True, help="Where Argo CD runs.")
@click.option("--check", is_flag=True, help="Write nothing; fail if FOLDER has something else. For CI.")
def render(
    *,
    folder: Path,
    registry: str,
    repository: str,
    path: str | None,
    revision: str,
    gpu_operator: IO[bytes] | None,
    ours: IO[bytes] | None,
    kuberay: IO[bytes] | None,
    keep_kuberay: bool,
    ignore: tuple[str, ...],
    namespace: str,
    project: str,
    argocd_namespace: str,
    check: bool,
) -> int:
    """Write Applications to FOLDER: root.yaml, and in applications/ those that it holds.

    GPUPools are yours: put them into FOLDER/pools, from where an Application takes them. Commit FOLDER, then give the
    first Application to Argo CD: kubectl apply -f FOLDER/root.yaml. From then on it follows git.

    \b
    Examples:
      kubectl gpu gitops render clusters/prod --registry registry.example.com/gpu \\
        --repository https://git.example.com/infra.git \\
        --gpu-operator gpu-operator/ap-values.yaml --kuberay kuberay-operator/ap-values.yaml
      kubectl gpu gitops render clusters/prod … --keep-kuberay   with KubeRay's operator
      kubectl gpu gitops render clusters/prod … --check      in CI: is it up to date?
      kubectl gpu gitops render clusters/prod … --ignore nfd.nodefeaturerules

    \b
    Exit codes: 0 written, or up to date; 1 refused, with each key that is not supported; 2 wrong
    usage; 4 --check, and FOLDER has something else.
    """
    from gpu_control_plane.gitops.applications import Source  # noqa: PLC0415
    from gpu_control_plane.gitops.refusals import UnsupportedKeys  # noqa: PLC0415
    from gpu_control_plane.gitops.render import Inputs  # noqa: PLC0415
    from gpu_control_plane.gitops.render import render as rendered  # noqa: PLC0415
    from gpu_control_plane.operator.migration.values import BadValues  # noqa: PLC0415

    if path is None and (folder.is_absolute() or ".." in folder.parts):
        raise click.UsageError(f"{folder} may be anywhere in the repository: say its path from the root, with --path.")
    source = Source(
        registry=registry,
        repository=repository,
        path=(path or folder.as_posix()).strip("/"),
        revision=revision,
        namespace=namespace,
        project=project,
        argocd_namespace=argocd_namespace,
    )
    inputs = Inputs(
        gpu_operator=_read(gpu_operator),
        ours=_read(ours),
        kuberay=_read(kuberay),
        keep_kuberay=keep_kuberay,
        ignored=frozenset(ignore),
    )
    try:
        files = rendered(inputs, source)
    except UnsupportedKeys as refused:
        raise click.ClickException(
            f"{refused}\nRemove them, or leave them out knowingly with --ignore KEY."
        ) from refused
    except BadValues as error:
        raise click.ClickException(str(error)) from error
    return _checked(folder, files) if check else _write(folder, files, argocd_namespace)


def _read(file: IO[bytes] | None) -> "ValuesFile | None":
    from gpu_control_plane.gitops.render import ValuesFile  # noqa: PLC0415

    return ValuesFile(file.name, read_values(file)) if file else None


def _write(folder: Path, files: dict[str, str], argocd_namespace: str) -> int:
    """Write what differs, and remove Applications that are no longer rendered: Argo CD would keep them running."""
    stale = _stale(folder, files)
    if _KUBERAY in stale:
        raise click.ClickException(_KEEP_THE_CRDS.format(file=folder / _KUBERAY, namespace=argocd_namespace))
    for name in stale:
        (folder / name).unlink()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    pools = folder / "pools"
    pools.mkdir(exist_ok=True)
    if not any(pools.iterdir()):
        (pools / ".gitkeep").touch()  # git keeps no empty folder, and Argo CD refuses an Application without its folder
    click.echo("".join(f"{folder / name}\n" for name in files), nl=False)
    click.echo("".join(f"removed {folder / name}\n" for name in stale), nl=False)
    click.echo(f"\nPut GPUPools into {folder / 'pools'}, commit, and once: kubectl apply -f {folder / 'root.yaml'}")
    return ExitCode.OK


def _checked(folder: Path, files: dict[str, str]) -> int:
    differing = [name for name, text in files.items() if not _same(folder / name, text)]
    for name in (*differing, *_stale(folder, files)):
        click.echo(f"{folder / name} is not what the values say: run the command without --check.", err=True)
    return ExitCode.FINDINGS if differing or _stale(folder, files) else ExitCode.OK


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


def _stale(folder: Path, files: dict[str, str]) -> list[str]:
    present = (path.relative_to(folder).as_posix() for path in sorted((folder / "applications").glob("*.yaml")))
    return [name for name in present if name not in files]
