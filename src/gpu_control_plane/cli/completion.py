"""`kubectl_complete-gpu`: what kubectl's own completion asks for the rest of `kubectl gpu …`.

kubectl calls it with the words so far, the last one unfinished. It answers with a choice a line and then `:4`, which
tells the shell to offer no files. Nothing has to be set up: it lies beside `kubectl-gpu` on PATH.
"""

import sys
from collections.abc import Sequence

from click.shell_completion import ShellComplete

_NO_FILES = ":4"


def main() -> None:
    """Answer to the words of this process."""
    sys.stdout.write("".join(f"{line}\n" for line in (*choices(sys.argv[1:]), _NO_FILES)))


def choices(words: Sequence[str]) -> list[str]:
    """What the last word may become, with a remark behind a tab where there is one."""
    from gpu_control_plane.cli.main import commands  # noqa: PLC0415

    *before, incomplete = words or [""]
    found = ShellComplete(commands, {}, "kubectl gpu", "").get_completions(list(before), incomplete)
    return [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
