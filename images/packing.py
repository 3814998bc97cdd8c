"""Runs `layer.py` under the recorded Debian Python: this machine's Python and zlib leave no trace in a layer."""

import subprocess
import sys
from pathlib import Path

from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.progress import Progress
from images import layer
from images.debian import lay_debian
from images.errors import ImageError
from images.lock import read_lock
from images.mirror import package_files
from images.oci import Layer

_TIMEOUT = 600


class Packer:
    """Debian's Python for this machine's processor, unpacked and never installed. It needs no root."""

    def __init__(self, root: Path, progress: Progress) -> None:
        if sys.platform != "linux":
            raise ImageError(
                "The image is packed by the Python that is in it, which runs on Linux. Use the Dockerfile."
            )
        packages = package_files(read_lock(this_platform().arch), progress)
        with progress.step("Unpacking the Python that packs"):
            lay_debian(packages, root)
        [libraries] = root.glob("usr/lib/*-linux-gnu")
        [loader] = libraries.glob("ld-linux-*.so.*")
        python = root / "usr/bin/python3"
        self._command = [str(loader), "--library-path", str(libraries), str(python), "-B", "-P", "-S", layer.__file__]

    def pack(self, root: Path, holds: str) -> Layer:
        """Byte-compile and pack what is below `root`. Several may be packed at once."""
        packed = root.with_suffix(".tar.gz")
        ran = subprocess.run(
            [*self._command, str(root), str(packed)],
            env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT,
        )
        if ran.returncode:
            raise ImageError(f"Packing {holds} failed: {ran.stderr.strip()}")
        return Layer(content=packed.read_bytes(), uncompressed=ran.stdout, holds=holds)
