"""`python -m gpu_control_plane.agent.runtimes`: what the node's container runtime can do, and its configuration."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from gpu_control_plane.agent.runtimes import terminal
from gpu_control_plane.agent.runtimes.configure import ConfigChange
from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from gpu_control_plane.agent.runtimes.setup import STATE, RuntimeName, RuntimeSetup

_PROGRAM: Final = "python -m gpu_control_plane.agent.runtimes"
_EXAMPLES: Final = f"""\b
Examples:
  {_PROGRAM} inspect
  {_PROGRAM} verify && echo as wanted
  {_PROGRAM} set --restart
  {_PROGRAM} set --nvidia-runtime /usr/bin/nvidia-container-runtime
  {_PROGRAM} set --runtime crio --cdi-folder /srv/cdi
  {_PROGRAM} undo --restart

\b
Exit status:
  0  done, or as wanted
  1  verify only: not as wanted
  2  it could not be done or found out; the error says why
"""
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)


class _Failure(click.ClickException):
    exit_code = 2


@click.group(epilog=_EXAMPLES, context_settings=_SETTINGS)
@click.pass_context
def runtimes(context: click.Context) -> None:
    """See and change what the container runtime of this node can do for containers with cards.

    Only what is missing is written, and recorded, so that `undo` takes back exactly that: a file that was not changed
    since is byte for byte what it was.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False


def _setup(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say which runtime; `function` gets a `RuntimeSetup`, and its failures become sentences."""

    @click.option(
        "--runtime",
        type=click.Choice([each.value for each in RuntimeName]),
        default=RuntimeName.CONTAINERD.value,
        show_default=True,
        help="The container runtime.",
    )
    @click.option("--config", type=_FILE, help="Its configuration file.  [default: where the runtime looks for it]")
    @click.option("--state", type=_FOLDER, default=STATE, show_default=True, help="Where we remember what we wrote.")
    @click.option("--host-root", type=_FOLDER, default=Path("/"), show_default=True, help="Where the host's files are.")
    @functools.wraps(function)
    def with_setup(*, runtime: str, config: Path | None, state: Path, host_root: Path, **rest: Any) -> None:
        setup = RuntimeSetup(runtime=RuntimeName(runtime), config=config, state=state, host=host_root)
        try:
            function(setup=setup, **rest)
        except RuntimeConfigError as error:
            raise _Failure(str(error)) from error
        except OSError as error:
            _explain(error)

    return with_setup


def _wanted(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say what the runtime should be able to do; `function` gets a `WantedConfig`."""

    @click.option(
        "--cdi-folder",
        multiple=True,
        default=WantedConfig().spec_dirs,
        show_default=True,
        help="Where it should look for CDI specifications; may be repeated.",
    )
    @click.option("--nvidia-runtime", metavar="PATH", help="NVIDIA's runtime, to be known below it as nvidia.")
    @functools.wraps(function)
    def with_wanted(*, cdi_folder: tuple[str, ...], nvidia_runtime: str | None, **rest: Any) -> None:
        handler = RuntimeHandler(nvidia_runtime) if nvidia_runtime else None
        function(wanted=WantedConfig(spec_dirs=cdi_folder, handler=handler), **rest)

    return with_wanted


_restart = click.option(
    "--restart/--no-restart",
    default=False,
    show_default=True,
    help="Restart the runtime if it does not know its configuration yet. Containers go on running.",
)


@runtimes.command(context_settings=_SETTINGS)
@_setup
def inspect(*, setup: RuntimeSetup) -> None:
    """Show what the runtime can do as it is configured."""
    config = setup.open()
    report = config.inspect()
    click.echo(terminal.title(report, setup.config_file))
    terminal.show(terminal.report_rows(report, config.edited, restart_due=config.restart_due))


@runtimes.command(context_settings=_SETTINGS)
@_setup
@_wanted
def verify(*, setup: RuntimeSetup, wanted: WantedConfig) -> None:
    """Say whether the runtime is configured as wanted: exit status 0 if it is, 1 if not."""
    config = setup.open()
    lacking = config.verify(wanted)
    for sentence in lacking:
        terminal.say(terminal.BAD, sentence)
    if lacking:
        click.echo(f"\nTo configure it: {_PROGRAM} set")
        sys.exit(1)
    terminal.say(terminal.OK, f"{setup.runtime} is configured as wanted.")
    if config.restart_due:
        terminal.say(
            terminal.ATTENTION, f"It may not know that yet, unless it was restarted since: {_PROGRAM} set --restart"
        )


@runtimes.command("set", context_settings=_SETTINGS)
@_setup
@_wanted
@_restart
def set_(*, setup: RuntimeSetup, wanted: WantedConfig, restart: bool) -> None:
    """Write what the runtime lacks, and nothing else. Doing it again changes nothing."""
    change = setup.open().set(wanted)
    _show_change(setup, change, f"{setup.runtime} is configured as wanted already; nothing was written.")
    _finish(setup, change, restart=restart)


@runtimes.command(context_settings=_SETTINGS)
@_setup
@_restart
def undo(*, setup: RuntimeSetup, restart: bool) -> None:
    """Take back everything that was ever written by `set`, or by the agent."""
    change = setup.open().undo()
    _show_change(setup, change, "There was nothing of ours to take back.")
    _finish(setup, change, restart=restart)


def _show_change(setup: RuntimeSetup, change: ConfigChange, nothing: str) -> None:
    for path in change.files:
        terminal.say(terminal.OK, f"{'changed' if path.exists() else 'removed'}   {path}")
    if not change.files:
        terminal.say(terminal.OK, nothing)
    if not change.restart_due and change.files:
        terminal.say(terminal.OK, f"{setup.runtime} does the same as before; no restart is needed.")


def _finish(setup: RuntimeSetup, change: ConfigChange, *, restart: bool) -> None:
    if restart and setup.open().restart(setup.restarter()):
        terminal.say(terminal.OK, f"{setup.runtime} was told to restart.")
    elif change.restart_due:
        terminal.say(terminal.ATTENTION, f"{setup.runtime} learns of it when it is restarted: run this with --restart.")


def _explain(error: OSError) -> NoReturn:
    where = f"{error.filename}: " if error.filename else ""
    advice = " Run it as root." if isinstance(error, PermissionError) else ""
    raise _Failure(f"{where}{error.strerror or error}.{advice}") from error


if __name__ == "__main__":
    runtimes()
