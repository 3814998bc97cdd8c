"""An OCI archive with several layers, that containerd imports, Docker loads and skopeo copies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gpu_control_plane.local.images import add_blob, root_file_system, stable_json

_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    content: bytes
    """A tar, compressed."""
    uncompressed: str
    """SHA-256 of the tar before compression."""
    holds: str


class Configuration(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """How containers of the image start, in the words of the specification."""

    user: str
    env: tuple[str, ...]
    entrypoint: tuple[str, ...]
    working_dir: str
    labels: Mapping[str, str]


def write_archive(
    path: Path, *, name: str, architecture: str, created: str, layers: Sequence[Layer], config: Configuration
) -> str:
    """Write the archive; the image's digest, by which a registry would know it."""
    blobs: dict[str, bytes] = {}
    layered = [add_blob(blobs, _LAYER, layer.content) for layer in layers]
    configuration = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.uncompressed}" for layer in layers]},
        "history": [{"created": created, "created_by": layer.holds} for layer in layers],
    }
    described = add_blob(blobs, _CONFIG, stable_json(configuration))
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described, "layers": layered}
    top = add_blob(blobs, _MANIFEST, stable_json(manifest))
    annotations = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    platform = {"architecture": architecture, "os": "linux"}
    for_docker = [{"Config": _file(described), "RepoTags": [name], "Layers": [_file(layer) for layer in layered]}]
    files = {
        "oci-layout": stable_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": stable_json(
            {"schemaVersion": 2, "manifests": [{**top, "annotations": annotations, "platform": platform}]}
        ),
        "manifest.json": stable_json(for_docker),
        **{f"blobs/sha256/{digest}": content for digest, content in blobs.items()},
    }
    path.write_bytes(root_file_system(files))
    return str(top["digest"])


def _file(described: Mapping[str, object]) -> str:
    return f"blobs/{str(described['digest']).replace(':', '/')}"
