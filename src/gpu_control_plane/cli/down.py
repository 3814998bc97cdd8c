"""`kubectl gpu down`: stop the local cluster and remove it."""

import sys

import click

from gpu_control_plane.cli.options import DEFAULT_NAME, cluster_name

_EXAMPLES = """\b
Examples:
  kubectl gpu down                        stop everything and remove the data
  kubectl gpu down --keep-data            stop; `up` brings it back as it was
"""


@click.command("down", short_help="Stop the local cluster and remove its data.", epilog=_EXAMPLES)
@cluster_name
@click.option("--keep-data", is_flag=True, help="Keep objects, certificates and address for the next `up`.")
def command(name: str, keep_data: bool) -> None:
    """Stop the local cluster, whatever state it is in, and remove its data.

    Running it again is safe, and so is running it after a crash. The downloaded programs stay in the cache.
    """
    from gpu_control_plane.cli.screen import IDLE, OK, Screen  # noqa: PLC0415
    from gpu_control_plane.local.lifecycle import bring_down  # noqa: PLC0415

    found = bring_down(name, Screen(sys.stderr), keep_data=keep_data)
    screen = Screen(sys.stdout)
    if not found:
        screen.mark(IDLE, f"There is no cluster {name}; nothing to stop.")
    elif keep_data:
        again = "kubectl gpu up" if name == DEFAULT_NAME else f"kubectl gpu up --name {name}"
        screen.mark(OK, f"The cluster {name} is stopped and its data kept. `{again}` brings it back.")
    else:
        screen.mark(OK, f"The cluster {name} is gone.")
