"""How a console is set up: where it listens, how people sign in, how long they stay."""

import ipaddress
from datetime import timedelta
from pathlib import Path

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.console.sign_in.oidc import OIDCSettings
from gpu_control_plane.kube.errors import ConfigError


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str = DEFAULT_NAMESPACE
    """Where our controllers run, whose Events about themselves are shown."""
    host: str = "127.0.0.1"
    port: int = 8443
    certificate: Path | None = None
    key: Path | None = None
    behind_tls_proxy: bool = False
    """Whether something in front of it, such as an Ingress, has the certificate; it also knows the caller's address."""
    public_url: str | None = None
    """Under which people reach it, such as https://gpu.example.com."""
    oidc: OIDCSettings | None = None
    impersonate: bool = False
    """Whether people are who the identity provider says, and written for by impersonation, because the API server does
    not take the provider's tokens."""
    user_claim: str = "email"
    user_prefix: str = ""
    groups_claim: str = "groups"
    groups_prefix: str = ""
    signed_in_as_kubeconfig: bool = False
    address_file: Path | None = None
    prometheus_url: str | None = None
    """Of a Prometheus that scrapes our controller and agents: for GPU-hours, and for plots older than the console."""
    session_lifetime: timedelta = timedelta(hours=12)
    session_idle: timedelta = timedelta(hours=2)
    most_sessions: int = 2000

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def https(self) -> bool:
        """Whether browsers reach it over TLS."""
        return self.certificate is not None or self.behind_tls_proxy

    def check(self) -> None:
        """Refuse what would show tokens to the network, or let a stranger in."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("The console needs --tls-certificate and --tls-key together.")
        if not self.loopback and not self.https:
            raise ConfigError(
                f"The console does not listen on {self.host} without TLS: tokens would cross the network. Give it "
                "--tls-certificate and --tls-key, or --behind-tls-proxy where an Ingress has the certificate."
            )
        if self.signed_in_as_kubeconfig and (not self.loopback or self.behind_tls_proxy):
            raise ConfigError(
                "--signed-in-as-kubeconfig is for your own machine: it needs --host 127.0.0.1, and nothing before it."
            )
        if self.impersonate and self.oidc is None:
            raise ConfigError("--impersonate needs an identity provider: --oidc-issuer.")
        if self.impersonate and (self.user_prefix.startswith("system:") or self.groups_prefix.startswith("system:")):
            raise ConfigError("Nobody is impersonated with the prefix system:. Choose another.")
