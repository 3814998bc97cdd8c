"""The record of Debian's packages: complete, stable, and clear about what is missing."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from images.errors import ImageError
from images.lock import ARCHITECTURES, SUITE, read_lock, write_lock
from images.resolve import WANTED, _packages

from image.packages import deb, lock_of

LATER = datetime(2027, 1, 1, tzinfo=UTC)


def test_every_architecture_has_the_same_packages() -> None:
    names = {arch: [package.name for package in read_lock(arch).packages] for arch in ARCHITECTURES}
    assert names["amd64"] == names["arm64"] == sorted(names["amd64"])
    assert {*WANTED} <= {*names["amd64"]}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_record_names_suite_architecture_and_checksums(architecture: str) -> None:
    lock = read_lock(architecture)
    assert (lock.suite, lock.architecture) == (SUITE, architecture)
    for package in lock.packages:
        assert re.fullmatch("[0-9a-f]{64}", package.sha256)
        assert re.search(rf"_({architecture}|all)\.deb$", package.path)


def test_the_same_packages_leave_the_record_as_it_is() -> None:
    lock = lock_of({"one": deb("one", {})})
    assert lock.renewed(lock.packages, LATER) == lock


def test_other_packages_get_a_new_date() -> None:
    lock, other = lock_of({"one": deb("one", {})}), lock_of({"two": deb("two", {})})
    assert lock.renewed(other.packages, LATER).resolved == LATER


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    lock = lock_of({"one": deb("one", {}), "two": deb("two", {})})
    write_lock(lock, tmp_path / "lock.json")
    assert read_lock("amd64", tmp_path / "lock.json") == lock


def test_a_missing_or_broken_record_says_how_to_make_one(tmp_path: Path) -> None:
    for content in (None, "{}"):
        if content:
            (tmp_path / "lock.json").write_text(content)
        with pytest.raises(ImageError, match="make image-lock"):
            read_lock("amd64", tmp_path / "lock.json")


def test_apts_answer_becomes_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBIAN_MIRROR", "http://mirror/")
    address = "http://mirror/debian-security/pool/updates/main/z/zlib/zlib1g_1.3%2breally1.3.1-1_amd64.deb"
    [package] = _packages(f"Reading…\n'{address}' zlib1g_1%3a1.3+really1.3.1-1_amd64.deb 88720 SHA256:{'a' * 64}\n")
    assert (package.name, package.version) == ("zlib1g", "1:1.3+really1.3.1-1")
    assert package.path == "debian-security/pool/updates/main/z/zlib/zlib1g_1.3+really1.3.1-1_amd64.deb"
