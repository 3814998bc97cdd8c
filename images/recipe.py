"""What the image is: its layers, its user, how it starts, what it says about itself."""

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from gpu_control_plane import __version__
from gpu_control_plane.local.progress import Progress
from images import entrypoint
from images.debian import USER, lay_debian
from images.lock import Lock, read_lock
from images.mirror import package_files
from images.oci import Configuration, Layer, write_archive
from images.packing import Packer
from images.sbom import Component, debian_components, image_subject, python_components, write_sbom
from images.wheels import install_product, install_wheels

PRODUCT = "gpu-control-plane"
NAME = f"localhost/{PRODUCT}:{__version__}"
_ENTRYPOINT = f"/usr/local/bin/{PRODUCT}"
CONFIGURATION = Configuration(
    user=f"{USER}:{USER}",
    env=("PATH=/usr/local/bin:/usr/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"),
    entrypoint=(_ENTRYPOINT,),
    working_dir="/",
    labels={
        "org.opencontainers.image.title": PRODUCT,
        "org.opencontainers.image.description": "Controller and node agent of the GPU control plane for Kubernetes",
        "org.opencontainers.image.version": __version__,
        "org.opencontainers.image.licenses": "Apache-2.0",
    },
)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The image as folders, one a layer, by what they hold. The layer that changes most often comes last."""

    lock: Lock
    folders: dict[str, Path]
    components: list[Component]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The image before it is put into an archive."""

    lock: Lock
    layers: tuple[Layer, ...]
    components: list[Component]


class Built(msgspec.Struct, frozen=True, kw_only=True):
    archive: Path
    sbom: Path
    digest: str
    """By which a registry would know the image."""


def build(architecture: str, folder: Path, progress: Progress, name: str = NAME) -> Built:
    """Write the archive and, beside it, the list of what is in it."""
    parts = make(architecture, progress)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{PRODUCT}-{__version__}-{architecture}"
    archive, sbom = folder / f"{stem}.tar", folder / f"{stem}.spdx.json"
    created = f"{parts.lock.resolved:%Y-%m-%dT%H:%M:%SZ}"
    digest = write_archive(
        archive, name=name, architecture=architecture, created=created, layers=parts.layers, config=CONFIGURATION
    )
    subject = image_subject(name=PRODUCT, version=__version__, architecture=architecture, digest=digest)
    write_sbom(sbom, subject=subject, title=stem, created=created, components=parts.components)
    return Built(archive=archive, sbom=sbom, digest=digest)


def make(architecture: str, progress: Progress) -> Parts:
    """Make the layers. Nothing of another processor runs, so any machine makes the image for any other."""
    with tempfile.TemporaryDirectory(prefix=f"{PRODUCT}-") as folder:
        scratch = Path(folder)
        layout = lay_out(architecture, scratch, progress)
        packer = Packer(scratch / "packer", progress)
        with progress.step("Compiling and packing the layers") as step, ThreadPoolExecutor() as threads:
            packing = {threads.submit(packer.pack, folder, title): title for title, folder in layout.folders.items()}
            for packed in as_completed(packing):
                step.detail(f"{packing[packed]} is ready")
            layers = tuple(packed.result() for packed in packing)
    return Parts(lock=layout.lock, layers=layers, components=layout.components)


def lay_out(architecture: str, scratch: Path, progress: Progress) -> Layout:
    """Put the content of each layer into a folder."""
    lock = read_lock(architecture)
    packages = package_files(lock, progress)
    debian, wheels, product = (scratch / name for name in ("debian", "wheels", "product"))
    with progress.step("Laying out Debian, the wheels and our package") as step:
        step.detail("Debian")
        lay_debian(packages, debian)
        step.detail("wheels")
        installed = install_wheels(architecture, wheels, scratch)
        step.detail("our package")
        installed.append(install_product(product, scratch))
        _install_entrypoint(product)
        components = [*debian_components(lock, debian), *python_components(installed)]
    titles = (f"Debian {lock.suite}", "wheels of uv.lock", f"{PRODUCT} {__version__}")
    return Layout(lock=lock, folders=dict(zip(titles, (debian, wheels, product), strict=True)), components=components)


def _install_entrypoint(root: Path) -> None:
    program = root / _ENTRYPOINT.lstrip("/")
    program.parent.mkdir(parents=True)
    shutil.copyfile(entrypoint.__file__, program)
    program.chmod(0o755)
