"""Options that several commands share, so that they read the same everywhere."""

import click

cluster_name = click.option(
    "--name", default="gpu", show_default=True, metavar="NAME", help="Which local cluster, when there are several."
)
