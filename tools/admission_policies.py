"""Writes the chart's admission policies from the rules in the code. `--check` only says whether the file is stale."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpu_control_plane.api.generate import bring_up_to_date, out_of_date
from gpu_control_plane.installation.policies import POLICIES
from gpu_control_plane.kube.manifest_yaml import to_yaml

FILE: Final = Path("charts/gpu-control-plane/files/admission-policies.yaml")
HEADER: Final = "Generated from gpu_control_plane/rules, do not edit: make generate"


def main(arguments: Sequence[str] = ()) -> int:
    files = {Path.cwd() / FILE: to_yaml({"policies": POLICIES}, HEADER)}
    stale = out_of_date(files, ())
    if "--check" in arguments:
        if stale:
            sys.stderr.write(f"Out of date with the code: {FILE}. Run `make generate` and commit the result.\n")
        return 1 if stale else 0
    for path in bring_up_to_date(files, stale):
        sys.stdout.write(f"{path.relative_to(Path.cwd())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
