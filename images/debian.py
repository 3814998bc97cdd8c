"""The lowest layer: Debian's Python and what it needs, unpacked and not installed.

No installation script runs, so that any machine can make the image for any other. The little that these scripts would
have done and we need is done here: the bundle of certificates, the users, and dpkg's list of what is installed, by
which scanners know the packages.
"""

import fnmatch
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from images.deb import Deb, read_deb
from images.lock import Package

USER = 64535
_PASSWD = f"""root:x:0:0:root:/root:/usr/sbin/nologin
gpu-control-plane:x:{USER}:{USER}::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
_GROUP = f"root:x:0:\ngpu-control-plane:x:{USER}:\nnogroup:x:65534:\n"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

_DOCUMENTATION = PurePosixPath("usr/share/doc")
_KEPT = (f"{_DOCUMENTATION}/*/copyright",)
_DROPPED = (
    "boot",
    "etc/update-motd.d*",
    "usr/games",
    "usr/lib/*-linux-gnu/gconv*",  # character sets for programs written in C; Python brings its own
    "usr/lib/python3*/pydoc_data/*",
    "usr/lib/python3*/test/*",
    "usr/lib/valgrind/*",
    "usr/share/applications*",
    "usr/share/binfmts*",
    "usr/share/bug*",
    "usr/share/dict",
    "usr/share/doc-base*",
    f"{_DOCUMENTATION}/*",
    "usr/share/gdb*",
    "usr/share/info*",
    "usr/share/lintian*",
    "usr/share/locale*",
    "usr/share/man*",
    "usr/share/pixmaps*",
    "usr/src",
)


def lay_debian(files: Mapping[Package, Path], root: Path) -> None:
    """Make `root` a small Debian of these packages."""
    dpkg = root / "var/lib/dpkg"
    stanzas = []
    # The links of base-files, such as `lib` to `usr/lib`, have to be there before anything goes through them.
    for package in sorted(files, key=lambda package: (package.name != "base-files", package.name)):
        deb = read_deb(files[package])
        unpacked = deb.unpack(root, is_wanted)
        stanzas.append(deb.control.rstrip("\n").replace("\n", "\nStatus: install ok installed\n", 1) + "\n")
        _record(deb, unpacked, dpkg / "info")
    (dpkg / "status").write_text("\n".join(stanzas))
    (dpkg / "info/format").write_text("1\n")  # names of files there may end in an architecture
    _finish(root)


def is_wanted(path: str, is_link: bool = False) -> bool:
    """Whether a running Python, a licence reader or a scanner would miss this file.

    A package may share another's documentation, and so its licence, by a link.
    """
    shares_licence = is_link and PurePosixPath(path).parent == _DOCUMENTATION
    return shares_licence or _matches(path, _KEPT) or not _matches(path, _DROPPED)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _record(deb: Deb, unpacked: list[str], info: Path) -> None:
    """Which files a package brought, for `dpkg -L`, `dpkg -S` and `dpkg --verify`."""
    info.mkdir(parents=True, exist_ok=True)
    name = deb.field("Package")
    if "Multi-Arch: same" in deb.control:
        name += f":{deb.field('Architecture')}"
    (info / f"{name}.list").write_text("".join(f"{path}\n" for path in unpacked))
    sums = (line for line in deb.checksums.splitlines(keepends=True) if is_wanted(line.split("  ", 1)[1].strip()))
    (info / f"{name}.md5sums").write_text("".join(sums))


def _finish(root: Path) -> None:
    bundle = root / _CERTIFICATES
    bundle.parent.mkdir(parents=True, exist_ok=True)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle.write_bytes(b"".join(authority.read_bytes() for authority in authorities))
    # Where OpenSSL looks by itself.
    (root / "usr/lib/ssl").mkdir(exist_ok=True)
    (root / "usr/lib/ssl/cert.pem").symlink_to(f"/{_CERTIFICATES}")
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
