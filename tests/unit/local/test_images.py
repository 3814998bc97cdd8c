"""Images made here: always the same bytes, and in the form that containerd imports."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from gpu_control_plane.local.images import Image, root_file_system, write_archive
from gpu_control_plane.local.platforms import Platform

LAYER = root_file_system({"bin/tool": b"#!/bin/sh\n"}, {"bin/alias": "bin/tool"}, folders=("tmp",))
IMAGE = Image(name="localhost/tool:local", layer=LAYER, command=("tool",))


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_archive([IMAGE], tmp_path / name, Platform("linux", "amd64"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_layer_belongs_to_root_and_has_every_folder() -> None:
    with tarfile.open(fileobj=io.BytesIO(LAYER)) as tar:
        assert [entry.name for entry in tar] == ["bin", "tmp", "bin/tool", "bin/alias"]
        assert {(entry.uid, entry.gid, entry.mtime) for entry in tar} == {(0, 0, 0)}
        alias = tar.extractfile("bin/alias")
        assert alias is not None
        assert alias.read() == b"#!/bin/sh\n"


def test_an_archive_leads_from_the_name_to_the_layer(tmp_path: Path) -> None:
    write_archive([IMAGE], tmp_path / "image.tar", Platform("linux", "arm64"))
    with tarfile.open(tmp_path / "image.tar") as tar:
        files = {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry))}
    [described] = json.loads(files["index.json"])["manifests"]
    assert described["annotations"] == {"io.containerd.image.name": "localhost/tool:local"}
    manifest = json.loads(_blob(files, described["digest"]))
    assert _blob(files, manifest["layers"][0]["digest"]) == LAYER
    config = json.loads(_blob(files, manifest["config"]["digest"]))
    assert (config["os"], config["architecture"], config["config"]["Cmd"]) == ("linux", "arm64", ["tool"])


def _blob(files: dict[str, bytes], digest: str) -> bytes:
    content = files[f"blobs/{digest.replace(':', '/')}"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content
