"""Container images without a registry or a container engine: a busybox, packed in Python, the same bytes every time.

The same layer is the pause image, whose only process sleeps for ever to keep a pod's namespaces.
"""

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gpu_control_plane.local.platforms import Platform, this_platform

BUSYBOX = "localhost/busybox:local"
PAUSE = "localhost/pause:local"
COREDNS = "localhost/coredns:local"
_PROGRAM = "bin/busybox"
_PATH = "PATH=/bin:/usr/bin:/sbin:/usr/sbin"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image of one layer."""

    name: str
    layer: bytes
    """A tar of the whole root file system, not compressed."""
    command: tuple[str, ...]
    environ: tuple[str, ...] = (_PATH,)


def busybox_images(busybox: Path) -> list[Image]:
    """A busybox with a link for each of its commands, and a pause image of the same layer."""
    listed = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True, timeout=10)
    links = {f"bin/{applet}": _PROGRAM for applet in listed.stdout.split() if applet != "busybox"}
    layer = root_file_system({_PROGRAM: busybox.read_bytes()}, links, folders=("dev", "etc", "proc", "sys", "tmp"))
    return [
        Image(name=BUSYBOX, layer=layer, command=("sh",)),
        Image(name=PAUSE, layer=layer, command=("sleep", "infinity")),
    ]


def coredns_image(program: Path) -> Image:
    """A DNS server, and nothing else."""
    layer = root_file_system({"bin/coredns": program.read_bytes()}, folders=("etc", "proc", "tmp"))
    return Image(name=COREDNS, layer=layer, command=("/bin/coredns",))


def root_file_system(
    programs: Mapping[str, bytes], links: Mapping[str, str] | None = None, folders: Sequence[str] = ()
) -> bytes:
    """A layer with these programs, hard links to them and empty folders, all by root and of no particular day."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        parents = {str(parent) for path in programs for parent in Path(path).parents if str(parent) != "."}
        for folder in sorted({*folders, *parents}):
            tar.addfile(_entry(folder, tarfile.DIRTYPE))
        for path, content in sorted(programs.items()):
            entry = _entry(path, tarfile.REGTYPE)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for path, target in sorted((links or {}).items()):
            entry = _entry(path, tarfile.LNKTYPE)
            entry.linkname = target
            tar.addfile(entry)
    return packed.getvalue()


def write_archive(images: Sequence[Image], path: Path, platform: Platform | None = None) -> None:
    """An OCI archive of these images, as `ctr images import` reads it."""
    platform = platform or this_platform()
    blobs: dict[str, bytes] = {}
    manifests = []
    for image in images:
        layer = add_blob(blobs, "application/vnd.oci.image.layer.v1.tar", image.layer)
        configuration = {
            "architecture": platform.arch,
            "os": platform.os,
            "config": {"Cmd": image.command, "Env": image.environ},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        }
        config = add_blob(blobs, "application/vnd.oci.image.config.v1+json", stable_json(configuration))
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}
        manifests.append(
            {**add_blob(blobs, kind, stable_json(manifest)), "annotations": {"io.containerd.image.name": image.name}}
        )
    files = {
        "oci-layout": stable_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": stable_json({"schemaVersion": 2, "manifests": manifests}),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    path.write_bytes(root_file_system(files))


def add_blob(blobs: dict[str, bytes], kind: str, content: bytes) -> dict[str, object]:
    """Add a blob, and describe it."""
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def stable_json(value: object) -> bytes:
    """The same value is the same bytes."""
    return msgspec.json.encode(value, order="deterministic")


def _entry(path: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type = kind
    entry.mode = 0o755
    return entry
