"""`kubectl gpu images`: every image that an installation needs, to mirror them where the cluster has no network."""

from typing import IO

import click

from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.output import output_option

_EXAMPLES = """\b
Examples:
  helm template gpu charts/gpu-control-plane -n d8-gpu-operator -f values.yaml \\
    --kube-version 1.34 | kubectl gpu images - --os ubuntu24.04
  helm template … | kubectl gpu images - -o name \\
    | xargs -I@ skopeo copy docker://@ docker://mirror/@
  kubectl get clusterpolicies,nvidiadrivers -o yaml | kubectl gpu images - --os ubuntu24.04

\b
Exit codes:
  0  these are all
  1  no such manifests
  2  wrong usage
  5  some could not be found out; standard error says which and why
"""


@click.command("images", short_help="Every image that an installation needs.", epilog=_EXAMPLES)
@click.argument("file", type=click.File("rb"))
@click.option(
    "--os",
    "systems",
    metavar="SYSTEM",
    multiple=True,
    help="Operating system of GPU nodes, such as ubuntu24.04 or rhel9: images of drivers have it in their tag. "
    "Repeat it.",
)
@click.option(
    "--kernel",
    "kernels",
    metavar="RELEASE",
    multiple=True,
    help="Kernel of GPU nodes, for precompiled drivers. Repeat it.",
)
@output_option
def command(*, file: IO[bytes], systems: tuple[str, ...], kernels: tuple[str, ...], output: str) -> int:
    """List the images of an installation: ours, those of `bootstrap` and of the jobs around the release, and those that
    the operator runs for a ClusterPolicy or an NVIDIADriver.

    FILE has manifests as `helm template` renders them, or objects of a cluster; - is standard input. No cluster is
    asked.
    """
    from gpu_control_plane.cli.output import Column, Table, say  # noqa: PLC0415
    from gpu_control_plane.installation.image_list import (  # noqa: PLC0415
        BadSystem,
        UsedImage,
        list_images,
        operating_system,
    )

    try:
        known = [operating_system(name) for name in systems]
    except BadSystem as error:
        raise click.BadParameter(f"{error}.", param_hint="--os") from error
    found = list_images(_manifests(file), known, kernels)
    table: Table[UsedImage] = Table(
        columns=(
            Column(title="IMAGE", value=lambda each: each.image),
            Column(title="USED BY", value=lambda each: "; ".join(each.used_by), shortened=True),
        ),
        name=lambda each: each.image,
    )
    table.show(found.images, output)
    for problem in found.problems:
        say(f"! {problem}")
    return ExitCode.PARTIAL if found.problems else ExitCode.OK


def _manifests(file: IO[bytes]) -> list[dict[str, object]]:
    from gpu_control_plane.kube.written_yaml import BadYAML, read_yaml  # noqa: PLC0415

    try:
        documents = [each for each in read_yaml(file.read()) if each]
    except BadYAML as error:
        raise click.ClickException(f"{file.name}: {error}") from error
    if not documents or not all(isinstance(each, dict) and "kind" in each for each in documents):
        raise click.ClickException(
            f"{file.name} holds no manifests. Give the output of `helm template`; where that is empty, look at what it "
            "said on standard error."
        )
    return documents
