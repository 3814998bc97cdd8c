"""`kubectl gpu deckhouse`: from one short description to what dhctl installs a Deckhouse cluster from."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpu_control_plane.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_control_plane.cli.screen import Screen
    from gpu_control_plane.deckhouse.description import ClusterDescription, FileReference
    from gpu_control_plane.deckhouse.render import Rendering
    from gpu_control_plane.deckhouse.secrets import SecretForm, SecretText

_EXAMPLES = """\b
Examples:
  kubectl gpu deckhouse example > cluster.yaml           a description to begin with
  kubectl gpu deckhouse render cluster.yaml              look at what it becomes
  kubectl gpu deckhouse render cluster.yaml -o out --with-secrets
  kubectl gpu deckhouse check config.yml resources.yml   files written by hand
"""
_SECRETS = "secrets.yml"


@click.group("deckhouse", short_help="Bring up a Deckhouse cluster with GPUs.", epilog=_EXAMPLES)
def command() -> None:
    """Bring up a Deckhouse cluster with GPUs: one short description becomes config.yml and resources.yml.

    Nothing here talks to a cluster or to a machine: the files are for dhctl, Deckhouse's installer.
    """


@command.command("render")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write files there.",
)
@click.option(
    "--with-secrets", is_flag=True, help=f"Also read the secrets, and write {_SECRETS}, readable by you alone."
)
def render(*, file: Path, folder: Path | None, with_secrets: bool) -> None:
    """Render the description FILE into config.yml and resources.yml.

    Without -o everything is printed. Neither file holds a secret: documents that need one are in them as comments, and
    go to secrets.yml if that is asked for, with the commands to type next. The description says where each secret comes
    from: env:NAME, file:PATH, or ask, and then it is asked for.

    \b
    Examples:
      kubectl gpu deckhouse render cluster.yaml
      kubectl gpu deckhouse render cluster.yaml -o out
      kubectl gpu deckhouse render cluster.yaml -o out --with-secrets

    \b
    Exit codes: 0 rendered; 1 the description is wrong, or a secret is missing; 2 wrong usage.
    """
    from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415
    from gpu_control_plane.deckhouse.secrets import SecretReader  # noqa: PLC0415

    if with_secrets and folder is None:
        raise click.UsageError("--with-secrets writes a file: say where, with -o DIR.")
    cluster, made, secrets = _rendered(file, SecretReader(file.parent, _asked) if with_secrets else None)
    if folder is None:
        click.echo(f"{made.config_yml()}---\n{made.resources_yml()}", nl=False)
        return
    screen = Screen(sys.stdout)
    folder.mkdir(parents=True, exist_ok=True)
    _write(screen, folder / "config.yml", made.config_yml())
    _write(screen, folder / "resources.yml", made.resources_yml())
    if secrets is not None:
        _keep_from_git(folder)
        _write(screen, folder / _SECRETS, secrets, private=True)
        _show_commands(screen, cluster, file.absolute().parent)
    else:
        names = ", ".join(document.title for document in made.secrets)
        screen.note(f"Left out, since they hold secrets: {names}.")
        screen.note(f"To install: --with-secrets writes them to {_SECRETS}, and says what to type next.")


@command.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check(*, files: tuple[Path, ...]) -> int:
    """Check FILES for dhctl, rendered or written by hand: fields, and the rules of Deckhouse's webhooks and preflight.

    Give all files of a cluster at once: rules go across them, such as taints that ModuleConfig global must tolerate.

    \b
    Examples:
      kubectl gpu deckhouse check config.yml resources.yml
      kubectl gpu deckhouse check out/*.yml

    \b
    Exit codes: 0 nothing is wrong; 2 wrong usage; 4 something is.
    """
    from gpu_control_plane.cli.screen import BAD, OK, Screen  # noqa: PLC0415
    from gpu_control_plane.deckhouse.check import check_files  # noqa: PLC0415
    from gpu_control_plane.kube.sentences import counted_are  # noqa: PLC0415

    checked = check_files((str(file), file.read_bytes()) for file in files)
    screen = Screen(sys.stdout)
    for problem in checked.problems:
        screen.mark(BAD, problem)
    for unknown in checked.unknown:
        screen.note(f"Not checked, since this kind is not known here: {unknown}.")
    if checked.problems:
        return ExitCode.FINDINGS
    if checked.documents:
        screen.mark(OK, f"{counted_are(len(checked.documents), 'document')} as Deckhouse wants.")
    return ExitCode.OK


@command.command("example")
def example() -> None:
    """Print a description to begin with: 3 masters, workers, nodes for databases, and two groups with cards.

    \b
    Examples:
      kubectl gpu deckhouse example > cluster.yaml

    \b
    Exit codes: 0 printed.
    """
    from importlib import resources  # noqa: PLC0415

    click.echo((resources.files("gpu_control_plane.deckhouse") / "example.yaml").read_text(), nl=False)


def _rendered(file: Path, reader: "SecretText | None") -> "tuple[ClusterDescription, Rendering, str | None]":
    """The description, what it becomes, and with a reader the content of secrets.yml."""
    from gpu_control_plane.deckhouse.description import read_description  # noqa: PLC0415
    from gpu_control_plane.deckhouse.errors import BadDescription, BringUpError  # noqa: PLC0415
    from gpu_control_plane.deckhouse.render import render as rendered  # noqa: PLC0415
    from gpu_control_plane.deckhouse.render import render_secrets  # noqa: PLC0415

    try:
        cluster = read_description(file.read_bytes())
        files = _files(file, cluster)
        made = rendered(cluster, files)
        return cluster, made, render_secrets(cluster, files, reader) if reader else None
    except BadDescription as error:
        number = len(error.problems)
        intro = f"{file} cannot be rendered" + (f", for {number} reasons:" if number > 1 else ":")
        raise click.ClickException("\n".join((intro, *(f"  {problem}" for problem in error.problems)))) from error
    except BringUpError as error:
        raise click.ClickException(str(error)) from error


def _files(file: Path, cluster: "ClusterDescription") -> "Mapping[FileReference, str]":
    """The files that a description refers to and that are no secrets, without those that cannot be read."""
    found = {}
    for _place, reference in cluster.certificates:
        with suppress(OSError):
            # What is no text is no certificate either, and is refused as such.
            found[reference] = (file.parent / Path(reference.path).expanduser()).read_text(errors="replace")
    return found


def _asked(form: "SecretForm") -> str:
    """Ask for a secret without showing it, and twice for one that is made up now."""
    again = "Once more" if form.chosen else False
    label = form.name[:1].upper() + form.name[1:]
    answer: str = click.prompt(label, hide_input=True, confirmation_prompt=again, err=True)
    return answer


def _write(screen: "Screen", path: Path, text: str, *, private: bool = False) -> None:
    """Write what differs. A private file never exists with wider rights, not for a moment."""
    from gpu_control_plane.cli.screen import OK  # noqa: PLC0415
    from gpu_control_plane.deckhouse.private_file import write_private  # noqa: PLC0415

    if private:
        write_private(path, text)
        screen.mark(OK, f"{path}  secrets in clear, mode 0600")
    elif path.exists() and path.read_text() == text:
        screen.mark(OK, f"{path}  unchanged")
    else:
        path.write_text(text)
        screen.mark(OK, f"{path}")


def _keep_from_git(folder: Path) -> None:
    ignored = folder / ".gitignore"
    lines = ignored.read_text().splitlines() if ignored.exists() else []
    # The installer's key and state lie there, too, once the commands below are typed.
    if missing := [name for name in (_SECRETS, "dhctl-ssh-key", "dhctl-tmp/") if name not in lines]:
        ignored.write_text("\n".join((*lines, *missing, "")))


def _show_commands(screen: "Screen", cluster: "ClusterDescription", described_in: Path) -> None:
    from gpu_control_plane.deckhouse.bootstrap_commands import bootstrap_commands  # noqa: PLC0415

    for number, each in enumerate(bootstrap_commands(cluster, described_in), 1):
        screen.line()
        screen.line(f"{number}. {each.title}:")
        for line in each.text.splitlines():
            screen.line(f"   {screen.style(line, fg='cyan')}")
