"""The lowest layer: only what is needed, and the traces by which licences and packages are found."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from images.debian import lay_debian

from image.packages import deb, files_of

BASE = deb("base-files", {"etc/debian_version": b"13\n", "usr/lib/os-release": b""}, {"lib": "usr/lib"})
PYTHON = deb(
    "python3",
    {
        "lib/python3/os.py": b"",
        "usr/share/doc/python3/copyright": b"Licence",
        "usr/share/doc/python3/README": b"Read me",
        "usr/share/man/man1/python3.1.gz": b"Manual",
        "usr/share/ca-certificates/mozilla/b.crt": b"B\n",
        "usr/share/ca-certificates/mozilla/a.crt": b"A\n",
    },
    {"usr/share/doc/libpython": "python3"},
    extra="Multi-Arch: same\n",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    lay_debian(files_of({"aaa": deb("aaa", {"lib/aaa": b""}), "base-files": BASE, "python3": PYTHON}, tmp_path), root)
    return root


def test_files_go_through_the_links_of_base_files(root: Path) -> None:
    assert (root / "lib").is_symlink()
    assert (root / "usr/lib/aaa").exists()
    assert (root / "usr/lib/python3/os.py").exists()


def test_manuals_go_and_licences_stay(root: Path) -> None:
    documentation = root / "usr/share/doc"
    assert [path.name for path in (documentation / "python3").iterdir()] == ["copyright"]
    assert (documentation / "libpython/copyright").read_text() == "Licence"
    assert not (root / "usr/share/man").exists()


def test_scanners_find_the_packages_and_their_files(root: Path) -> None:
    dpkg = root / "var/lib/dpkg"
    stanzas = (dpkg / "status").read_text().split("\n\n")
    assert [stanza.splitlines()[:2] for stanza in stanzas] == [
        [f"Package: {name}", "Status: install ok installed"] for name in ("base-files", "aaa", "python3")
    ]
    listed = (dpkg / "info/python3:amd64.list").read_text().splitlines()
    assert listed.count("/lib/python3/os.py") == 1
    assert "/usr/share/doc/python3/README" not in listed
    assert "README" not in (dpkg / "info/python3:amd64.md5sums").read_text()


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="dpkg is on Debian and Ubuntu only")
def test_dpkg_itself_understands_the_list(root: Path) -> None:
    listed = _dpkg(root, "--show", "--showformat=${Package} ${db:Status-Status}\n")
    assert listed.splitlines() == ["aaa installed", "base-files installed", "python3 installed"]
    assert _dpkg(root, "--search", "/lib/python3/os.py") == "python3:amd64: /lib/python3/os.py\n"


def _dpkg(root: Path, *arguments: str) -> str:
    """What dpkg says about a root, which has to be without complaints."""
    command = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_certificates_are_bundled_where_openssl_looks(root: Path) -> None:
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text() == "A\nB\n"
    assert str((root / "usr/lib/ssl/cert.pem").readlink()) == "/etc/ssl/certs/ca-certificates.crt"


def test_a_package_cannot_write_outside(tmp_path: Path) -> None:
    bad = deb("base-files", {"../outside": b"here"})
    with pytest.raises(Exception, match="outside"):
        lay_debian(files_of({"base-files": bad}, tmp_path), tmp_path / "root")
    assert not (tmp_path / "outside").exists()
