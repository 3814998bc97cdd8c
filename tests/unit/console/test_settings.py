"""A console that would show tokens to a network, or let strangers in, does not start."""

from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.console.sign_in.oidc import OIDCSettings
from gpu_control_plane.kube.errors import ConfigError

PEM = Path("tls.pem")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens here
DEX = OIDCSettings(issuer="https://dex", client_id="c", client_secret="s", redirect_url="https://gpu/sign-in/callback")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"host": "::1"},
        {"host": EVERYWHERE, "certificate": PEM, "key": PEM},
        {"host": EVERYWHERE, "behind_tls_proxy": True},
        {"signed_in_as_kubeconfig": True},
        {"oidc": DEX, "impersonate": True, "user_prefix": "oidc:"},
    ],
)
def test_safe_settings_are_taken(settings: dict[str, Any]) -> None:
    ConsoleSettings(**settings).check()


@pytest.mark.parametrize(
    ("settings", "saying"),
    [
        ({"host": EVERYWHERE}, "without TLS"),
        ({"host": "10.0.0.1"}, "without TLS"),
        ({"host": "gpu.example.com"}, "without TLS"),
        ({"certificate": PEM}, "together"),
        ({"host": EVERYWHERE, "certificate": PEM, "key": PEM, "signed_in_as_kubeconfig": True}, "your own machine"),
        ({"behind_tls_proxy": True, "signed_in_as_kubeconfig": True}, "your own machine"),
        ({"impersonate": True}, "identity provider"),
        ({"impersonate": True, "oidc": DEX, "groups_prefix": "system:"}, "system:"),
    ],
)
def test_unsafe_settings_are_refused(settings: dict[str, Any], saying: str) -> None:
    with pytest.raises(ConfigError, match=saying):
        ConsoleSettings(**settings).check()
