"""The chart's package: made by Helm, which checks it, and packed again without the time at which Helm did it."""

import subprocess
import tempfile
from pathlib import Path

from gpu_control_plane.local import ensure_binaries
from gpu_control_plane.local.versions import HELM
from release.archives import pack, unpacked
from release.source import PROJECT, ReleaseError, Source

_CHART = PROJECT / "charts/gpu-control-plane"
_HELM_TIMEOUT_SECONDS = 120


def package_chart(source: Source, into: Path) -> Path:
    helm = ensure_binaries(HELM.programs).path("helm")
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [helm, "package", _CHART, "--destination", folder],
            env={"HOME": folder},
            capture_output=True,
            text=True,
            check=False,
            timeout=_HELM_TIMEOUT_SECONDS,
        )
        if ran.returncode:
            raise ReleaseError(f"`helm package` refuses the chart: {ran.stderr.strip()}")
        [packed] = Path(folder).glob("*.tgz")
        result = into / packed.name
        pack(result, unpacked(packed), int(source.time.timestamp()))
    return result
