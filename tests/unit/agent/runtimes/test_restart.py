"""Restarting: the right way for the node, to the right process."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError
from gpu_control_plane.agent.runtimes.restart import restarter, socket_owner
from gpu_control_plane.agent.runtimes.setup import run_command

SERVER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.bind(sys.argv[1])
    server.listen()
    print("ready", flush=True)
    while True:
        server.accept()
"""


def test_systemd_is_asked_where_it_is_in_charge(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def note(command: Sequence[str]) -> str:
        asked.append(tuple(command))
        return ""

    restarter("containerd", tmp_path / "nothing.sock", note, systemd=tmp_path)()

    assert asked == [("systemctl", "restart", "containerd")]


def test_else_the_process_behind_the_socket_gets_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "runtime.sock"
    with subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        assert socket_owner(path) == server.pid

        restarter("containerd", path, run_command, systemd=tmp_path / "absent")()

        assert server.wait(timeout=60) == -signal.SIGHUP


def test_a_socket_that_no_process_serves_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RuntimeConfigError, match="No process answers"):
        socket_owner(tmp_path / "absent.sock")


def test_the_owner_of_a_socket_of_ours_is_this_process(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "own.sock"))
        server.listen()

        assert socket_owner(tmp_path / "own.sock") == os.getpid()


def test_a_command_that_fails_says_what_it_said() -> None:
    with pytest.raises(RuntimeConfigError, match="failed: no such thing"):
        run_command((sys.executable, "-c", "import sys; sys.exit('no such thing')"))
    with pytest.raises(RuntimeConfigError, match="could not be run"):
        run_command(("/nowhere/containerd", "--version"))
