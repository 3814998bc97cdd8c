"""A layer: the same bytes from the same files, whatever their times, owners and modes were on disk."""

import gzip
import importlib.util
import io
import marshal
import os
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from types import CodeType

import pytest
from images import layer

MODULE = "usr/lib/python3/module.py"


def _fill(root: Path) -> Path:
    (root / MODULE).parent.mkdir(parents=True)
    (root / MODULE).write_text("NAMES = {'a', 'b', 'c'}\ndef uses(x): return x in {'d', 'e', 'f'}\n")
    (root / "tmp").mkdir()
    (root / "usr/bin").mkdir()
    (root / "usr/bin/tool").write_text("#!")
    (root / "usr/bin/tool").chmod(0o4711)
    (root / "usr/bin/alias").symlink_to("tool")
    return root


def _pack(root: Path) -> tuple[bytes, str]:
    packed = root.with_suffix(".tar.gz")
    ran = subprocess.run(
        [sys.executable, "-B", layer.__file__, str(root), str(packed)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    return packed.read_bytes(), ran.stdout


@pytest.fixture
def entries(tmp_path: Path) -> dict[str, tarfile.TarInfo]:
    content, _ = _pack(_fill(tmp_path / "root"))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {entry.name: entry for entry in tar}


def test_times_modes_and_places_leave_no_trace(tmp_path: Path) -> None:
    one, two = _fill(tmp_path / "one"), _fill(tmp_path / "two")
    for path in two.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    assert _pack(one) == _pack(two)


def test_the_digest_is_that_of_the_uncompressed_layer(tmp_path: Path) -> None:
    content, digest = _pack(_fill(tmp_path / "root"))
    assert sha256(gzip.decompress(content)).hexdigest() == digest


def test_all_belongs_to_root_and_has_no_privileges(entries: dict[str, tarfile.TarInfo]) -> None:
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries.values()} == {(0, 0, "", layer.TIME)}
    assert entries["usr/bin/tool"].mode == 0o755
    assert entries[MODULE].mode == 0o644
    assert entries["usr/bin/alias"].linkname == "tool"


def test_only_folders_for_all_are_writable(entries: dict[str, tarfile.TarInfo]) -> None:
    assert [name for name, entry in entries.items() if entry.mode & 0o022 and not entry.issym()] == ["tmp"]


def test_bytecode_is_taken_without_a_look_at_the_source(tmp_path: Path) -> None:
    root = _fill(tmp_path / "root")
    _pack(root)
    compiled = Path(importlib.util.cache_from_source(str(root / MODULE))).read_bytes()
    assert compiled[4:8] == b"\x01\0\0\0"  # hash-based and unchecked, as PEP 552 has it
    code = marshal.loads(compiled[16:])  # noqa: S302 - written a moment ago
    assert isinstance(code, CodeType)
    assert code.co_filename == f"/{MODULE}"


def test_modules_outside_are_not_looked_at(tmp_path: Path) -> None:
    root = _fill(tmp_path / "root")
    (tmp_path / "outside.py").write_text("")
    (root / "usr/lib/python3/customized.py").symlink_to(tmp_path / "outside.py")
    _pack(root)
    assert not Path(importlib.util.cache_from_source(str(root / "usr/lib/python3/customized.py"))).exists()


def test_what_is_not_python_is_not_packed(tmp_path: Path) -> None:
    root = _fill(tmp_path / "root")
    (root / MODULE).write_text("def (:")
    with pytest.raises(subprocess.CalledProcessError):
        _pack(root)
