"""`python -m gpu_control_plane.agent.runtimes`: what the node's container runtime can do, and its configuration."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import msgspec

from gpu_control_plane.agent.runtime_record import STATE
from gpu_control_plane.agent.runtimes import terminal
from gpu_control_plane.agent.runtimes.configure import ConfigChange
from gpu_control_plane.agent.runtimes.edit_log import Author
from gpu_control_plane.agent.runtimes.host import enter_host
from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from gpu_control_plane.agent.runtimes.setup import (
    AUTO,
    RuntimeName,
    RuntimeSetup,
    configured_runtimes,
    find_runtime,
)

_PROGRAM: Final = "python -m gpu_control_plane.agent.runtimes"
_EXAMPLES: Final = f"""\b
Examples:
  {_PROGRAM} inspect
  {_PROGRAM} verify && echo as wanted
  {_PROGRAM} set --restart
  {_PROGRAM} set --nvidia-runtime /usr/bin/nvidia-container-runtime --default
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

    @_place
    @functools.wraps(function)
    def with_setup(*, runtime: str, setup: RuntimeSetup, **rest: Any) -> None:
        name = find_runtime(setup.host) if runtime == AUTO else RuntimeName(runtime)
        function(setup=msgspec.structs.replace(setup, runtime=name), **rest)

    return with_setup


def _place(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say which runtime and where; `function` gets both apart."""

    @click.option(
        "--runtime",
        type=click.Choice([AUTO, *(each.value for each in RuntimeName)]),
        default=AUTO,
        show_default=True,
        help="The container runtime; auto is the one that serves the kubelet.",
    )
    @click.option("--config", type=_FILE, help="Its configuration file.  [default: where the runtime looks for it]")
    @click.option("--program", metavar="PATH", help="Its program.  [default: the one on the path]")
    @click.option("--unit", help="Its systemd unit.  [default: named like the runtime]")
    @click.option("--state", type=_FOLDER, default=STATE, show_default=True, help="Where we remember what we wrote.")
    @click.option(
        "--host-root",
        type=_FOLDER,
        default=Path("/"),
        show_default=True,
        help="In a privileged container: where the host's files are.",
    )
    @click.option("--by-agent", is_flag=True, help="Note that the agent did it; with `undo`: only what the agent did.")
    @functools.wraps(function)
    def with_place(
        *,
        config: Path | None,
        program: str | None,
        unit: str | None,
        state: Path,
        host_root: Path,
        by_agent: bool,
        **rest: Any,
    ) -> None:
        setup = RuntimeSetup(
            config=config,
            program=program,
            unit=unit,
            state=state,
            host=click.get_current_context().obj or Path("/"),
            author=Author.AGENT if by_agent else Author.PERSON,
        )
        try:
            if host_root != Path("/"):
                enter_host(host_root)
            function(setup=setup, **rest)
        except RuntimeConfigError as error:
            raise _Failure(str(error)) from error
        except OSError as error:
            _explain(error)

    return with_place


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
    @click.option("--default", is_flag=True, help="With --nvidia-runtime: also for pods that name no RuntimeClass.")
    @functools.wraps(function)
    def with_wanted(*, cdi_folder: tuple[str, ...], nvidia_runtime: str | None, default: bool, **rest: Any) -> None:
        if default and nvidia_runtime is None:
            raise click.UsageError("--default goes with --nvidia-runtime.")
        handler = RuntimeHandler(nvidia_runtime) if nvidia_runtime else None
        function(wanted=WantedConfig(spec_dirs=cdi_folder, handler=handler, default=default), **rest)

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
@_place
@_restart
def undo(*, runtime: str, setup: RuntimeSetup, restart: bool) -> None:
    """Take back everything that was ever written by `set`, or by the agent. Without --runtime: of every runtime."""
    author = Author.AGENT if setup.author is Author.AGENT else None
    found = [name for name in configured_runtimes(setup.state, author) if runtime in (AUTO, name)]
    if not found:
        terminal.say(terminal.OK, "There was nothing of ours to take back.")
    for name in found:
        one = msgspec.structs.replace(setup, runtime=name)
        change = one.open().undo()
        _show_change(one, change, f"{name} holds nothing of ours any more.")
        _finish(one, change, restart=restart)


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
