"""The CRDs of the Prometheus operator, from its own source: what it would refuse is refused in tests, too."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.local.gobuild import find_go

VERSION: Final = "v0.79.2"
_MODULE: Final = "github.com/prometheus-operator/prometheus-operator"
_KINDS: Final = ("prometheusrules", "servicemonitors", "podmonitors")


def operator_crds() -> list[Path]:
    """The files of the kinds that the chart uses; `BuildFailed` says why they cannot be had."""
    answer = subprocess.run(
        [find_go(), "mod", "download", "-json", f"{_MODULE}@{VERSION}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"},
    )
    found: dict[str, str] = json.loads(answer.stdout or "{}")
    if "Dir" not in found:
        raise BuildFailed(f"The Prometheus operator's CRDs cannot be had: {found.get('Error') or answer.stderr}")
    folder = Path(found["Dir"]) / "example/prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in _KINDS]
