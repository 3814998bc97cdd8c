"""A port that was asked for and is taken is named, with what to do."""

import socket

import pytest

from gpu_control_plane.local.errors import PortTaken
from gpu_control_plane.local.ports import free_port, is_free, require_free


def test_a_taken_port_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"Port {port} on 127\.0\.0\.1.*API server.*in use.*choose another port"):
            require_free(port, "API server")


def test_a_chosen_port_is_free() -> None:
    assert is_free(free_port())
