"""Writes the chart's admission policies from the rules in the code, for the default namespace, which the chart replaces
by that of its release. `--check` only says whether the file is stale."""

import sys
from pathlib import Path
from typing import Final

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.generate import run
from gpu_control_plane.installation.policies import policies
from gpu_control_plane.kube.manifest_yaml import to_yaml

FILE: Final = Path("charts/gpu-control-plane/files/admission-policies.yaml")
HEADER: Final = "Generated from gpu_control_plane/rules, do not edit: make generate"


if __name__ == "__main__":
    sys.exit(run({Path.cwd() / FILE: to_yaml({"policies": policies(DEFAULT_NAMESPACE)}, HEADER)}, (), sys.argv[1:]))
