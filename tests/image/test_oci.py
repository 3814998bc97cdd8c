"""The archive: readable by containerd and skopeo (OCI) and by Docker, and both see the same image."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from images.oci import Configuration, Layer, write_archive

LAYERS = tuple(
    Layer(content=name.encode(), uncompressed=hashlib.sha256(name.encode()).hexdigest(), holds=name)
    for name in ("lower", "upper")
)
CONFIG = Configuration(user="1:1", env=("A=b",), entrypoint=("/run",), working_dir="/", labels={"l": "m"})


def _write(path: Path) -> tuple[str, dict[str, bytes]]:
    digest = write_archive(
        path,
        name="localhost/thing:1.0",
        architecture="arm64",
        created="2026-11-01T00:00:00Z",
        layers=LAYERS,
        config=CONFIG,
    )
    with tarfile.open(path) as tar:
        return digest, {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry))}


def _blob(files: dict[str, bytes], digest: str) -> Any:
    content = files[f"blobs/{digest.replace(':', '/')}"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def test_the_index_leads_to_the_layers(tmp_path: Path) -> None:
    digest, files = _write(tmp_path / "image.tar")
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [described] = json.loads(files["index.json"])["manifests"]
    assert described["digest"] == digest
    assert described["annotations"]["io.containerd.image.name"] == "localhost/thing:1.0"
    assert described["annotations"]["org.opencontainers.image.ref.name"] == "1.0"
    manifest = json.loads(_blob(files, digest))
    assert [_blob(files, layer["digest"]) for layer in manifest["layers"]] == [b"lower", b"upper"]
    config = json.loads(_blob(files, manifest["config"]["digest"]))
    assert (config["os"], config["architecture"]) == ("linux", "arm64")
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer.uncompressed}" for layer in LAYERS]
    assert config["config"] == {
        "User": "1:1",
        "Env": ["A=b"],
        "Entrypoint": ["/run"],
        "WorkingDir": "/",
        "Labels": {"l": "m"},
    }


def test_docker_finds_the_same_image(tmp_path: Path) -> None:
    digest, files = _write(tmp_path / "image.tar")
    manifest = json.loads(_blob(files, digest))
    [described] = json.loads(files["manifest.json"])
    assert described["RepoTags"] == ["localhost/thing:1.0"]
    paths = [described["Config"], *described["Layers"]]
    digests = [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    assert paths == [f"blobs/{each.replace(':', '/')}" for each in digests]


def test_the_same_layers_give_the_same_archive(tmp_path: Path) -> None:
    assert _write(tmp_path / "one") == _write(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
