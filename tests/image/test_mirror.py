"""Fetching packages: what was recorded or nothing, and a way out when Debian has moved on."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from images.errors import MirrorFailed, PackageGone, WrongContent
from images.mirror import HISTORY_VARIABLE, MIRROR_VARIABLE, package_files

from gpu_control_plane.local.ports import free_port
from gpu_control_plane.local.progress import Quiet
from image.packages import deb, lock_of

CONTENT = deb("python3", {"usr/bin/python3": b"snake"})
LOCK = lock_of({"python3": CONTENT})
PATH = f"/{LOCK.packages[0].path}"
IN_HISTORY = "/archive/debian/20261101T000000Z/pool/main/python3_1.0_amd64.deb"


class Host:
    """A mirror and the archive's history in one. What it serves is a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.requests.append(self.path)
            content = host.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv(MIRROR_VARIABLE, address)
        monkeypatch.setenv(HISTORY_VARIABLE, address)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield host
        server.shutdown()
        thread.join()


def test_packages_are_fetched_once_and_kept(host: Host, tmp_path: Path) -> None:
    host.files[PATH] = CONTENT
    for _ in range(2):
        [file] = package_files(LOCK, Quiet(), tmp_path).values()
        assert file.read_bytes() == CONTENT
    assert host.requests == [PATH]


def test_a_damaged_file_in_the_cache_is_fetched_again(host: Host, tmp_path: Path) -> None:
    host.files[PATH] = CONTENT
    [file] = package_files(LOCK, Quiet(), tmp_path).values()
    file.write_bytes(CONTENT[:-1])
    package_files(LOCK, Quiet(), tmp_path)
    assert file.read_bytes() == CONTENT


def test_another_content_is_refused_and_not_kept(host: Host, tmp_path: Path) -> None:
    host.files[PATH] = b"something else"
    with pytest.raises(WrongContent, match=f"python3 1.0 was refused.*{MIRROR_VARIABLE}"):
        package_files(LOCK, Quiet(), tmp_path)
    assert list((tmp_path / "debian").iterdir()) == []


def test_what_left_the_mirror_comes_from_the_archives_history(host: Host, tmp_path: Path) -> None:
    host.files[IN_HISTORY] = CONTENT
    [file] = package_files(LOCK, Quiet(), tmp_path).values()
    assert file.read_bytes() == CONTENT
    assert host.requests == [PATH, IN_HISTORY]


def test_a_package_that_is_gone_everywhere_says_what_to_do(host: Host, tmp_path: Path) -> None:
    with pytest.raises(PackageGone, match=r"python3 1\.0 \(amd64\).*no longer serves it.*`make image-lock`"):
        package_files(LOCK, Quiet(), tmp_path)


def test_a_mirror_that_does_not_answer_is_not_one_that_moved_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MIRROR_VARIABLE, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(MirrorFailed, match=r"cannot be fetched.*copy the cache folder"):
        package_files(LOCK, Quiet(), tmp_path)
