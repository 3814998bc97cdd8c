"""The entry point: finds the command, runs it, and turns an error into a sentence and an exit code.

Kept light: a command's own module imports what it needs when it runs, so that `--help` and completion are immediate.
"""

import gc
import importlib
import os
import sys
from collections.abc import Sequence

import click

from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.kube.logs import Logger

_SECTIONS = {
    "Look": ("status", "nodes", "devices", "pools", "pods", "ray", "top", "usage"),
    "Find out why": ("explain", "doctor", "preview"),
    "Act": (
        "approve",
        "revoke",
        "reassign",
        "retire",
        "hold",
        "clear-fault",
        "maintenance",
        "upgrade",
        "migrate",
        "backup",
        "restore",
        "gitops",
    ),
    "A new cluster": ("deckhouse", "images"),
    "A cluster on this machine": ("up", "down", "simulate", "monitoring"),
}
"""The commands, in the order and under the headings in which help lists them; each is a module of this folder."""
_DEBUG_VARIABLE = "GPU_CONTROL_PLANE_DEBUG"


class _LazyCommands(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for names in _SECTIONS.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in _SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(name, command.get_short_help_str()) for name, command in commands if command])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if not any(cmd_name in names for names in _SECTIONS.values()):
            return None
        command = importlib.import_module(f"gpu_control_plane.cli.{cmd_name.replace('-', '_')}").command
        return command if isinstance(command, click.Command) else None


@click.group(
    cls=_LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Run `kubectl gpu COMMAND --help` for the options and examples of a command.",
)
@click.version_option(package_name="gpu-control-plane", prog_name="kubectl gpu")
@click.option("--debug", is_flag=True, envvar=_DEBUG_VARIABLE, help="Show the Python traceback of an error.")
def commands(debug: bool) -> None:
    """GPUs for Kubernetes: pools, cards and a local cluster to try them on."""
    if debug:
        os.environ[_DEBUG_VARIABLE] = "1"


def main() -> None:
    """Run the command line of this process and exit."""
    Logger.level_of_commands = "error"
    gc.disable()  # A command is over before collecting would pay; those that go on enable it again.
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line. The exit code is the command's own, or says what went wrong."""
    try:
        result = commands.main(list(arguments), prog_name="kubectl gpu", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as chosen:
        return chosen.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("\n")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader has ended, as in `kubectl gpu status | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None or os.environ.get(_DEBUG_VARIABLE):
            raise
        from gpu_control_plane.cli.screen import Screen  # noqa: PLC0415

        Screen(sys.stderr).failure(sentence)
        return ExitCode.ABSENT if _is_absent(error) else ExitCode.ERROR


def _is_absent(error: Exception) -> bool:
    """Whether the object that was asked about does not exist, rather than its kind."""
    errors = sys.modules.get("gpu_control_plane.kube.errors")
    return errors is not None and isinstance(error, errors.NotFound) and not error.resource_missing


def _sentence(error: Exception) -> str | None:
    """The message of an expected error; None for any other, which is a bug and needs its traceback."""
    ours = {"gpu_control_plane.kube.errors": "KubeError", "gpu_control_plane.local.errors": "LocalError"}
    for module, root in ours.items():
        # An error of a module that is not imported cannot have been raised.
        if module in sys.modules and isinstance(error, getattr(sys.modules[module], root)):
            return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return None
