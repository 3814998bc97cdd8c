"""Values of a Helm chart, as files have them and as `helm get values` prints them."""

from typing import IO, Any, Final

import click

_HEADINGS: Final = (b"USER-SUPPLIED VALUES:", b"COMPUTED VALUES:")
"""What `helm get values` prints first, unless it is asked for YAML."""


def read_values(file: IO[bytes]) -> dict[str, Any]:
    """The values of a file; none for a file without any, which stands for the chart's own."""
    return _values_in(file.read(), file.name)


def read_release_values(file: IO[bytes], *, chart: str) -> dict[str, Any]:
    """The values of a release, as Helm prints them: `null` where it has none of its own. Nothing at all is refused:
    that is what a pipe holds if the command before it failed."""
    content = file.read()
    if not content.strip():
        raise click.ClickException(
            f"{file.name} is empty. Where it comes from a command, look at what that said: `helm get values` of a "
            f"release that does not exist prints nothing. For the defaults of {chart} write {{}}."
        )
    return _values_in(content, file.name)


def _values_in(content: bytes, name: str) -> dict[str, Any]:
    from gpu_control_plane.kube.written_yaml import BadYAML, read_one  # noqa: PLC0415

    try:
        given = read_one(_without_heading(content))
    except BadYAML as error:
        raise click.ClickException(f"{name}: {error}") from error
    if not isinstance(given, dict | None) or not all(isinstance(key, str) for key in given or {}):
        raise click.ClickException(f"{name} holds no values: a map of names is needed, as in values.yaml.")
    return given or {}


def _without_heading(content: bytes) -> bytes:
    """The line stays, empty, so that errors name the right one."""
    first, _, rest = content.partition(b"\n")
    return b"\n" + rest if first.strip() in _HEADINGS else content
