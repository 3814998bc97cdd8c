"""Values of a Helm chart, as files have them and as `helm get values` prints them."""

from typing import IO, Any

import click


def read_values(file: IO[bytes]) -> dict[str, Any]:
    """The values of a file."""
    return values_in(file.read(), file.name)


def values_in(content: bytes, name: str) -> dict[str, Any]:
    """The values; none for a file without any, which stands for the chart's own."""
    from gpu_control_plane.kube.written_yaml import BadYAML, read_one  # noqa: PLC0415

    try:
        given = read_one(content)
    except BadYAML as error:
        raise click.ClickException(f"{name}: {error}") from error
    if not isinstance(given, dict | None) or not all(isinstance(key, str) for key in given or {}):
        raise click.ClickException(f"{name} holds no values: a map of names is needed, as in values.yaml.")
    return given or {}
