"""`make audit` fails when a fault of a locked dependency is known, and says so where it could not look."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULT = {"id": "TEST-1", "modified": "2026-01-01T00:00:00Z", "summary": "It is broken.", "affected": []}


class Database(ThreadingHTTPServer):
    """As much of OSV as `uv audit` asks for."""

    faulty: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Database

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        faulty = {"vulns": [{"id": FAULT["id"], "modified": FAULT["modified"]}]}
        self._answer({"results": [faulty if each["package"]["name"] == self.server.faulty else {} for each in asked]})

    def do_GET(self) -> None:
        self._answer(FAULT)

    def _answer(self, document: object) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_arguments: object) -> None:
        """Not for people."""


@pytest.fixture
def database() -> Iterator[Database]:
    with Database(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def audit(url: str, **environ: str) -> subprocess.CompletedProcess[str]:
    uv = next(iter(sorted(ROOT.glob(".tools/uv-*/bin/uv"))), None)
    if uv is None:
        pytest.skip("uv is not here: `make setup` fetches it")
    known = {**os.environ, "OSV_URL": url, "UV_HTTP_RETRIES": "0", "CI": "", **environ}
    return subprocess.run([ROOT / "tools/audit", uv], env=known, capture_output=True, text=True, check=False)


def test_locked_dependencies_without_known_faults_pass(database: Database) -> None:
    ran = audit(database.url)
    assert (ran.returncode, "Found no known vulnerabilities" in ran.stdout) == (0, True), ran.stdout


def test_a_known_fault_of_a_dependency_fails(database: Database) -> None:
    database.faulty = "msgspec"
    ran = audit(database.url)
    assert (ran.returncode, "It is broken." in ran.stdout) == (1, True), ran.stdout


@pytest.mark.parametrize(("ci", "fails"), [("", False), ("true", True)])
def test_without_a_database_nothing_is_claimed(ci: str, *, fails: bool) -> None:
    ran = audit("http://127.0.0.1:9", CI=ci)
    assert "nothing was checked" in ran.stderr
    assert (ran.returncode != 0) is fails
