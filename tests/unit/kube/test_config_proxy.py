"""Which proxy is used, by the rules kubectl users know."""

import pytest

from gpu_control_plane.kube.errors import ConfigError
from gpu_control_plane.kube.proxy import proxy_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "proxy_url", "environ", "proxy"),
    [
        ("https://api.example", None, {}, None),
        ("https://api.example", None, {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api.example", None, {"https_proxy": PROXY}, PROXY),
        ("https://api.example", None, {"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY),
        ("https://api.example", None, {"HTTPS_PROXY": "proxy:3128"}, PROXY),
        ("https://api.example", None, {"HTTP_PROXY": PROXY}, None),
        ("http://api.example", None, {"HTTP_PROXY": PROXY}, PROXY),
        ("https://api.example", "http://chosen", {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, "http://chosen"),
        ("https://localhost:6443", None, {"HTTPS_PROXY": PROXY}, None),
        ("https://127.0.0.1:6443", None, {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]:6443", None, {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_a_proxy_is_chosen(server: str, proxy_url: str | None, environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(server, proxy_url, environ) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "bypassed"),
    [
        ("https://api.example", "*", True),
        ("https://api.example", "api.example", True),
        ("https://api.example", "API.EXAMPLE", True),
        ("https://api.example", "example", True),
        ("https://api.example", ".example", True),
        ("https://api.example", "*.example", True),
        ("https://example", ".example", False),
        ("https://badexample", "example", False),
        ("https://api.example", " other , api.example ", True),
        ("https://api.example", "", False),
        ("https://api.example", ",", False),
        ("https://api.example:6443", "api.example:6443", True),
        ("https://api.example:6443", "api.example:443", False),
        ("https://api.example", "api.example:443", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.4", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.0.0.0/nonsense", False),
        ("https://api.example", "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "[fd00::1]", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "fd00::1", True),
    ],
)
def test_no_proxy_says_what_is_reached_directly(server: str, no_proxy: str, bypassed: bool) -> None:
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}
    assert (proxy_for(server, None, environ) is None) == bypassed


def test_a_socks_proxy_in_the_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\$HTTPS_PROXY asks for a socks5 proxy"):
        proxy_for("https://api.example", None, {"HTTPS_PROXY": "socks5://proxy"})
