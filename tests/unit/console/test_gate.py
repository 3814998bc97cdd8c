"""What the gate reads from a request."""

import pytest
from starlette.requests import Request

from gpu_control_plane.console.gate import bearer_token, client_address, cookie_name, wants_html
from gpu_control_plane.console.settings import ConsoleSettings


def _request(path: str = "/", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request(
        {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": raw, "client": ("10.0.0.9", 1)}
    )


def test_only_a_proxy_of_ours_is_believed_who_is_calling() -> None:
    forged = _request(x_forwarded_for="1.2.3.4, 5.6.7.8")
    assert client_address(forged, behind_proxy=False) == "10.0.0.9"
    # The last one is what the proxy itself saw; those before it came with the request.
    assert client_address(forged, behind_proxy=True) == "5.6.7.8"
    assert client_address(_request(), behind_proxy=True) == "10.0.0.9"


@pytest.mark.parametrize(
    ("header", "token"),
    [("Bearer abc", "abc"), ("bearer abc ", "abc"), ("Basic abc", None), ("", None), ("abc", None), ("Bearer", "")],
)
def test_a_token_comes_as_a_bearer(header: str, token: str | None) -> None:
    assert bearer_token(_request(authorization=header)) == token


@pytest.mark.parametrize(
    ("path", "accept", "html"),
    [
        ("/", "text/html,application/xhtml+xml", True),
        ("/", "text/html, text/event-stream", False),
        ("/", "*/*", False),
        ("/api/v1/cards", "text/html", False),
    ],
)
def test_people_get_pages_and_programs_json(path: str, accept: str, html: bool) -> None:
    assert wants_html(_request(path, accept=accept)) is html


def test_cookies_are_bound_to_the_host_where_browsers_allow_it() -> None:
    assert cookie_name("gpu-session", ConsoleSettings()) == "gpu-session"
    assert cookie_name("gpu-session", ConsoleSettings(behind_tls_proxy=True)) == "__Host-gpu-session"
