"""The process `console`: its options, and how they become settings."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpu_control_plane import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from gpu_control_plane.console.sign_in.oidc import OIDCSettings
    from gpu_control_plane.kube import Runtime

_EXAMPLES = """\b
Examples:
  python -m gpu_control_plane.console --signed-in-as-kubeconfig    on your machine, as yourself
  python -m gpu_control_plane.console --host 0.0.0.0 --tls-certificate tls.crt --tls-key tls.key
  python -m gpu_control_plane.console --host 0.0.0.0 --behind-tls-proxy \\
      --public-url https://gpu.example.com --oidc-issuer https://dex.example.com \\
      --oidc-client-id gpu-console --oidc-client-secret-file secret
"""


@click.command("console", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Where our controllers run.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; any but loopback needs TLS."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="Port to listen on.")
@click.option(
    "--tls-certificate", type=click.Path(path_type=Path), help="Certificate (PEM); it is read again when it is renewed."
)
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its key (PEM).")
@click.option("--behind-tls-proxy", is_flag=True, help="An Ingress has the certificate, and says who is calling.")
@click.option("--public-url", metavar="URL", help="Under which people reach it.  [default: as they call it]")
@click.option("--oidc-issuer", metavar="URL", help="Identity provider for signing in.  [default: only by token]")
@click.option("--oidc-client-id", metavar="ID", default="gpu-console", show_default=True, help="Who we are to it.")
@click.option("--oidc-client-secret-file", type=click.Path(path_type=Path), help="File with the secret it gave us.")
@click.option("--oidc-authority", type=click.Path(path_type=Path), help="Authority of its certificate (PEM).")
@click.option("--oidc-scope", "oidc_scopes", multiple=True, help="A scope to ask for beside the usual ones.")
@click.option(
    "--impersonate",
    is_flag=True,
    help="People are who the identity provider says, and are written for by impersonation: for an API server that does "
    "not take its tokens.",
)
@click.option("--user-claim", default="email", show_default=True, help="With --impersonate: what names a person.")
@click.option("--user-prefix", default="", help="With --impersonate: put before names.")
@click.option("--groups-claim", default="groups", show_default=True, help="With --impersonate: what names groups.")
@click.option("--groups-prefix", default="", help="With --impersonate: put before groups.")
@click.option(
    "--signed-in-as-kubeconfig",
    is_flag=True,
    help="Sign in whoever opens the printed address, once, as the kubeconfig's user. On 127.0.0.1 only.",
)
@click.option(
    "--address-file", type=click.Path(path_type=Path), help="Write that address there instead of printing it."
)
@click.option(
    "--prometheus-url",
    metavar="URL",
    help="Prometheus that scrapes the controller and the agents.  [default: plots begin with the console]",
)
@click.option(
    "--session-hours",
    type=click.FloatRange(0.1, 168),
    default=12,
    show_default=True,
    help="How long a sign-in lasts at most.",
)
@click.option(
    "--idle-hours", type=click.FloatRange(0.1, 168), default=2, show_default=True, help="How long it lasts unused."
)
@click.option("--status-host", default="0.0.0.0", show_default=True, help="Address of /healthz, /readyz and /metrics.")  # noqa: S104 - the kubelet and Prometheus call from outside the pod
@click.option("--status-port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Their port.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    *,
    kubeconfig: Path | None,
    namespace: str,
    host: str,
    port: int,
    tls_certificate: Path | None,
    tls_key: Path | None,
    behind_tls_proxy: bool,
    public_url: str | None,
    oidc_issuer: str | None,
    oidc_client_id: str,
    oidc_client_secret_file: Path | None,
    oidc_authority: Path | None,
    oidc_scopes: tuple[str, ...],
    impersonate: bool,
    user_claim: str,
    user_prefix: str,
    groups_claim: str,
    groups_prefix: str,
    signed_in_as_kubeconfig: bool,
    address_file: Path | None,
    prometheus_url: str | None,
    session_hours: float,
    idle_hours: float,
    status_host: str,
    status_port: int,
    log_level: str,
) -> None:
    """Serve the web console until SIGTERM or SIGINT.

    Nothing is readable without a sign-in: by the identity provider, or with a token of the cluster. People see and do
    what RBAC lets them.
    """
    from gpu_control_plane.console.server import build  # noqa: PLC0415 - `--help` answers without these
    from gpu_control_plane.console.settings import ConsoleSettings  # noqa: PLC0415
    from gpu_control_plane.kube import main  # noqa: PLC0415

    def add_console(runtime: "Runtime") -> None:
        settings = ConsoleSettings(
            namespace=namespace,
            host=host,
            port=port,
            certificate=tls_certificate,
            key=tls_key,
            behind_tls_proxy=behind_tls_proxy,
            public_url=public_url.rstrip("/") if public_url else None,
            oidc=_oidc(
                oidc_issuer,
                client_id=oidc_client_id,
                secret_file=oidc_client_secret_file,
                authority=oidc_authority,
                scopes=oidc_scopes,
                public_url=public_url,
            ),
            impersonate=impersonate,
            user_claim=user_claim,
            user_prefix=user_prefix,
            groups_claim=groups_claim,
            groups_prefix=groups_prefix,
            signed_in_as_kubeconfig=signed_in_as_kubeconfig,
            address_file=address_file,
            prometheus_url=prometheus_url or None,
            session_lifetime=timedelta(hours=session_hours),
            session_idle=timedelta(hours=idle_hours),
        )
        build(runtime, settings)

    exit_code = main(
        "gpu-console",
        add_console,
        log_level=log_level,
        kubeconfig=kubeconfig,
        elect=False,
        one_of_many=False,
        status_host=status_host,
        status_port=status_port,
    )
    click.get_current_context().exit(exit_code)


def _oidc(
    issuer: str | None,
    *,
    client_id: str,
    secret_file: Path | None,
    authority: Path | None,
    scopes: tuple[str, ...],
    public_url: str | None,
) -> "OIDCSettings | None":
    from gpu_control_plane.console.sign_in.oidc import SCOPES, OIDCSettings  # noqa: PLC0415
    from gpu_control_plane.console.sign_in.routes import CALLBACK  # noqa: PLC0415
    from gpu_control_plane.kube.errors import ConfigError  # noqa: PLC0415

    if issuer is None:
        return None
    if public_url is None:
        raise ConfigError("--oidc-issuer needs --public-url: the identity provider sends people back to it.")
    if not issuer.startswith("https://"):
        raise ConfigError(f"The identity provider {issuer} must have an https:// address.")
    try:
        secret = secret_file.read_text().strip() if secret_file is not None else ""
    except OSError as error:
        raise ConfigError(f"The secret for the identity provider cannot be read: {error.strerror}.") from error
    return OIDCSettings(
        issuer=issuer,
        client_id=client_id,
        client_secret=secret,
        redirect_url=f"{public_url.rstrip('/')}{CALLBACK}",
        scopes=(*SCOPES, *scopes),
        authority=authority,
    )
