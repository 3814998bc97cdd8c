"""`--help` of every program fits into a terminal of 100 columns, and shows examples."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from examples import demo

from gpu_control_plane import controller
from gpu_control_plane.agent.command_line import agent
from gpu_control_plane.cli.main import commands
from gpu_control_plane.console.command_line import command as console
from gpu_control_plane.installation import crds, declare, uninstall
from gpu_control_plane.local import __main__ as local

_WIDEST = 100
_PROGRAMS = (
    commands,
    controller.command,
    agent,
    console,
    crds.command,
    declare.command,
    uninstall.command,
    local.command,
    demo.main,
)


def _all(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[click.Command, tuple[str, ...]]]:
    yield command, path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _all(found, (*path, name))


CASES = [(program, path) for program in _PROGRAMS for _, path in _all(program)]


@pytest.mark.parametrize(
    ("program", "path"), CASES, ids=lambda case: " ".join(case) if isinstance(case, tuple) else case.name
)
def test_help_fits_into_a_hundred_columns(program: click.Command, path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(program, [*path, "--help"], terminal_width=_WIDEST)
    assert shown.exit_code == 0
    assert [line for line in shown.output.splitlines() if len(line) > _WIDEST] == []


@pytest.mark.parametrize("path", [path for _, path in _all(commands) if path], ids=" ".join)
def test_every_command_shows_an_example(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(commands, [*path, "--help"], terminal_width=_WIDEST).output
    assert "Example" in shown
    assert f"kubectl gpu {path[0]}" in shown
