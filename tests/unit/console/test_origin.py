"""Which requests count as our own pages'."""

import pytest

from gpu_control_plane.console.errors import BadRequest, ForeignOrigin
from gpu_control_plane.console.origin import check_host, check_origin, local_path

OWN = "https://gpu.example.com"


@pytest.mark.parametrize(
    ("method", "headers", "with_cookie"),
    [
        ("POST", {"sec-fetch-site": "same-origin"}, True),
        ("POST", {"origin": OWN}, True),
        ("POST", {}, False),  # a program with its own token
        ("GET", {}, True),
        ("GET", {"sec-fetch-site": "none"}, True),  # typed, or a bookmark
        ("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),
    ],
)
def test_own_requests_pass(method: str, headers: dict[str, str], with_cookie: bool) -> None:
    check_origin(method, headers, OWN, with_cookie=with_cookie)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "with_cookie"),
    [
        ({}, True),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": "http://gpu.example.com"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-site", "origin": OWN}, True),
        ({"sec-fetch-site": "none"}, True),
        # A proxy that signs people in by its own cookie adds the token: the browser's headers still count.
        ({"origin": "https://evil.example"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_changes_that_another_site_asks_for_are_refused(
    method: str, headers: dict[str, str], with_cookie: bool
) -> None:
    with pytest.raises(ForeignOrigin):
        check_origin(method, headers, OWN, with_cookie=with_cookie)


@pytest.mark.parametrize("mode", ["cors", "no-cors", "websocket"])
def test_another_site_cannot_read_or_embed(mode: str) -> None:
    with pytest.raises(ForeignOrigin):
        check_origin("GET", {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode}, OWN, with_cookie=True)


def test_another_site_cannot_frame() -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    with pytest.raises(ForeignOrigin):
        check_origin("GET", headers, OWN, with_cookie=True)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8443", "127.0.0.1.evil.example", ""])
def test_loopback_answers_under_its_own_names_only(host: str) -> None:
    with pytest.raises(BadRequest):
        check_host(host, None, loopback=True)


@pytest.mark.parametrize("host", ["127.0.0.1:8443", "localhost:1", "localhost", "[::1]:8443"])
def test_loopback_has_several_names(host: str) -> None:
    check_host(host, None, loopback=True)


def test_a_public_console_answers_under_its_public_name_only() -> None:
    check_host("GPU.example.com", OWN, loopback=False)
    with pytest.raises(BadRequest):
        check_host("10.0.0.7:8443", OWN, loopback=False)


@pytest.mark.parametrize(
    "wanted",
    [None, "", "https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil", "javascript:alert(1)", "/a\nb"],
)
def test_a_sign_in_leads_nowhere_else(wanted: str | None) -> None:
    assert local_path(wanted) == "/"


def test_a_sign_in_leads_back() -> None:
    assert local_path("/nodes?model=H200#x") == "/nodes?model=H200#x"
