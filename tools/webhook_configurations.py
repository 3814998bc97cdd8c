"""Writes the chart's webhook configurations from the code. `--check` only says whether the file is stale."""

import sys
from pathlib import Path
from typing import Final

from gpu_control_plane.api.generate import run
from gpu_control_plane.kube.manifest_yaml import to_yaml
from gpu_control_plane.rules.webhook_configuration import webhook_configurations

FILE: Final = Path("charts/gpu-control-plane/files/webhook-configurations.yaml")
HEADER: Final = "Generated from gpu_control_plane/rules, do not edit: make generate"


if __name__ == "__main__":
    configurations = webhook_configurations(lambda path: {"service": {"path": path}})
    text = to_yaml({"configurations": configurations}, HEADER)
    sys.exit(run({Path.cwd() / FILE: text}, (), sys.argv[1:]))
