"""Options that several commands share, so that they read the same everywhere."""

from functools import partial

import click

DEFAULT_NAME = "gpu"

cluster_name = click.option(
    "--name",
    default=DEFAULT_NAME,
    show_default=True,
    metavar="NAME",
    help="Which local cluster, when there are several.",
)
profile = partial(click.option, "--profile", default="H200-141", show_default=True)
cards = partial(click.option, "--cards", type=int, default=8, show_default=True)
