"""The process `controller`: every controller of the product in one, each of which can be switched off.

Run as `python -m gpu_control_plane.controller`.
"""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpu_control_plane import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    import msgspec

    from gpu_control_plane.kube import Runtime

_OPERATOR: Final = "operator"
_RAY: Final = "ray"
_DEPLOYMENT: Final = "gpu-control-plane-controller"
"""What the chart calls the Deployment of this process."""
_CONTROLLERS: Final = {
    "inventory": "gpu_control_plane.inventory.controller",
    "bootstrap": "gpu_control_plane.bootstrap.controller",
    "pools": "gpu_control_plane.pools.controller",
    _OPERATOR: "gpu_control_plane.operator.controller",
    _RAY: "gpu_control_plane.ray.controller",
}
_UPGRADES: Final = "upgrades"
TIMING_GROUPS: Final = {
    "inventory": ("gpu_control_plane.inventory.controller", "Settings"),
    "bootstrap": ("gpu_control_plane.bootstrap.controller", "Settings"),
    "pools": ("gpu_control_plane.pools.controller", "Settings"),
    _UPGRADES: ("gpu_control_plane.operator.upgrade.controller", "UpgradeLimits"),
    _RAY: ("gpu_control_plane.ray.settings", "Settings"),
}
"""By group, the module and the name of the settings that have waiting times: docs/settings.md lists them, and they can
be set in the chart."""
_EXAMPLES = """\b
Examples:
  python -m gpu_control_plane.controller                       all, in a pod or with $KUBECONFIG
  python -m gpu_control_plane.controller --without operator    all but one
  python -m gpu_control_plane.controller --status-port 0       health and metrics on a free port
  python -m gpu_control_plane.controller --webhooks gpu-hooks  webhooks, too, behind this Service
  python -m gpu_control_plane.controller --timing inventory.nodeGracePeriod=5m
"""


@click.command("controller", epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--without", multiple=True, type=click.Choice(list(_CONTROLLERS)), help="A controller to switch off.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig file.  [default: as kubectl finds it]")
@click.option(
    "--namespace",
    default=DEFAULT_NAMESPACE,
    show_default=True,
    help="Where our programs run, agents publish their reports, and the leader's lease is kept.",
)
@click.option("--operand-namespace", help="Where drivers and other operands run.  [default: that of --namespace]")
@click.option(
    "--nfd-namespace",
    "nfd_namespaces",
    multiple=True,
    help="A namespace in which Node Feature Discovery is trusted, beside the usual ones.",
)
@click.option(
    "--nvidia-namespace",
    "nvidia_namespaces",
    multiple=True,
    help="A namespace in which NVIDIA's operator and its operands are trusted, beside the usual ones.",
)
@click.option(
    "--ray-watch-namespace",
    "ray_watch_namespaces",
    multiple=True,
    help="A namespace in which Ray is looked after.  [default: all]",
)
@click.option(
    "--ray-single-namespace",
    is_flag=True,
    help="Read nothing of Ray outside the one namespace of --ray-watch-namespace.",
)
@click.option(
    "--kuberay-namespace",
    "kuberay_namespaces",
    multiple=True,
    help="A namespace in which KubeRay's operator is trusted, beside the usual ones.",
)
@click.option(
    "--ray-batch-scheduler",
    default="",
    metavar="NAME",
    help="What schedules the pods of a Ray cluster together: volcano, yunikorn, scheduler-plugins or kai-scheduler.",
)
@click.option(
    "--ray-gang/--no-ray-gang",
    default=True,
    show_default=True,
    help="Whether Ray workers of a group that ask for cards of pools start together.",
)
@click.option("--ray-use-kubernetes-proxy", is_flag=True, help="Reach Ray's dashboards through the API server.")
@click.option(
    "--ray-routes", is_flag=True, help="The cluster has OpenShift's Routes, which take the place of Ingresses."
)
@click.option(
    "--ray-defaults",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What every pod of Ray has besides its template, with the keys of `configuration` in KubeRay's chart.",
)
@click.option(
    "--managed-label",
    default="gpu.deckhouse.io/enabled",
    show_default=True,
    help="The label of Nodes that says whether our programs run there.",
)
@click.option(
    "--managed-by-default/--not-managed-by-default",
    default=True,
    show_default=True,
    help="Whether they run on GPU nodes without that label.",
)
@click.option(
    "--timing",
    "timings",
    metavar="NAME=DURATION",
    multiple=True,
    help="A waiting time, such as inventory.nodeGracePeriod=5m; docs/settings.md lists them.",
)
@click.option("--identity", help="Name of this replica in the lease.  [default: host name and process]")
@click.option("--status-host", default="0.0.0.0", show_default=True, help="Address of /healthz, /readyz and /metrics.")  # noqa: S104 - the kubelet and Prometheus call from outside the pod
@click.option("--status-port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Their port.")
@click.option("--webhooks", metavar="SERVICE", help="Serve the webhooks behind this Service.  [default: do not]")
@click.option("--webhook-port", type=click.IntRange(0, 65535), default=9443, show_default=True, help="Their port.")
@click.option(
    "--webhook-host",
    help="Listen on this address only, and be called by it: for an API server on the same machine."
    "  [default: be called through the Service]",
)
@click.option(
    "--webhook-client-authority",
    type=click.Path(path_type=Path),
    help="Answer only callers with a certificate of this authority (PEM).  [default: answer all]",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    *,
    without: tuple[str, ...],
    kubeconfig: Path | None,
    namespace: str,
    operand_namespace: str | None,
    nfd_namespaces: tuple[str, ...],
    nvidia_namespaces: tuple[str, ...],
    ray_watch_namespaces: tuple[str, ...],
    ray_single_namespace: bool,
    kuberay_namespaces: tuple[str, ...],
    ray_batch_scheduler: str,
    ray_gang: bool,
    ray_use_kubernetes_proxy: bool,
    ray_routes: bool,
    ray_defaults: Path | None,
    managed_label: str,
    managed_by_default: bool,
    timings: tuple[str, ...],
    identity: str | None,
    status_host: str,
    status_port: int,
    webhooks: str | None,
    webhook_port: int,
    webhook_host: str | None,
    webhook_client_authority: Path | None,
    log_level: str,
) -> None:
    """Run the controllers of the GPU control plane until SIGTERM or SIGINT.

    Environment variables that end in _IMAGE, such as DRIVER_IMAGE, name images of operands that a ClusterPolicy does
    not name. Those that KubeRay's operator reads, such as ENABLE_PROBES_INJECTION, are switches for Ray.
    """
    from gpu_control_plane.kube import Key, main  # noqa: PLC0415 - `--help` answers without these
    from gpu_control_plane.kube.replicas import watch_replicas  # noqa: PLC0415
    from gpu_control_plane.rules.managed_nodes import ManagedNodes  # noqa: PLC0415
    from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces  # noqa: PLC0415
    from gpu_control_plane.settings import UnknownTiming  # noqa: PLC0415

    managed = ManagedNodes(label=managed_label, by_default=managed_by_default)
    operands = operand_namespace or namespace
    trusted = TrustedNamespaces(frozenset({*nvidia_namespaces, operands}), own=namespace)
    others: dict[str, dict[str, Any]] = {
        "inventory": {"namespace": namespace, "managed": managed, "nfd_namespaces": frozenset(nfd_namespaces)},
        "bootstrap": {"managed": managed, "trusted": trusted},
        "pools": {"namespace": namespace},
        _OPERATOR: {"namespace": operands, "trusted": trusted},
    }
    if _RAY not in without:
        if ray_single_namespace and len(ray_watch_namespaces) != 1:
            raise click.BadParameter("it is for one --ray-watch-namespace.", param_hint="--ray-single-namespace")
        others[_RAY] = _ray(
            namespace,
            alone_in=ray_watch_namespaces[0] if ray_single_namespace else None,
            kuberay_namespaces=kuberay_namespaces,
            watch_namespaces=ray_watch_namespaces,
            batch_scheduler=ray_batch_scheduler,
            gang=ray_gang,
            use_kubernetes_proxy=ray_use_kubernetes_proxy,
            openshift=ray_routes,
            defaults=ray_defaults,
        )
    try:
        settings = _settings(others, timings)
    except UnknownTiming as error:
        raise click.BadParameter(f"{error}.", param_hint="--timing") from error

    def build(runtime: "Runtime") -> None:
        watch_replicas(runtime, Key(_DEPLOYMENT, namespace))
        for name, module in _CONTROLLERS.items():
            if name in without:
                continue
            if name == _OPERATOR:
                _build_operator(runtime, module, others[_OPERATOR], settings[_UPGRADES])
            else:
                importlib.import_module(module).build(runtime, settings[name])
        if webhooks is not None:
            from gpu_control_plane.admission import controller as admission  # noqa: PLC0415

            admission.build(
                runtime,
                admission.Settings(
                    service=webhooks,
                    namespace=namespace,
                    port=webhook_port,
                    host=webhook_host,
                    client_authorities=_authority(webhook_client_authority),
                    ray=None
                    if _RAY in without
                    else admission.RayScope(
                        namespaces=settings[_RAY].options.watch_namespaces,
                        trusted=settings[_RAY].trusted,
                        alone_in=settings[_RAY].alone_in,
                    ),
                ),
            )

    exit_code = main(
        "gpu-control-plane",
        build,
        log_level=log_level,
        kubeconfig=kubeconfig,
        namespace=namespace,
        identity=identity,
        status_host=status_host,
        status_port=status_port,
    )
    # click ignores what a command returns: a process that could not run would end as if all were well.
    click.get_current_context().exit(exit_code)


def _authority(path: Path | None) -> bytes | None:
    from gpu_control_plane.kube.errors import ConfigError  # noqa: PLC0415

    try:
        return path.read_bytes() if path is not None else None
    except OSError as error:
        raise ConfigError(f"the authority of webhook clients cannot be read: {path}: {error.strerror}") from error


def settings_type(group: str) -> "type[msgspec.Struct]":
    """The struct of settings of a group in `TIMING_GROUPS`."""
    module, name = TIMING_GROUPS[group]
    found: type[msgspec.Struct] = getattr(importlib.import_module(module), name)
    return found


def _settings(others: Mapping[str, Mapping[str, Any]], timings: tuple[str, ...]) -> dict[str, Any]:
    """What the controllers are given: its waiting times as they were set, and `others`."""
    from gpu_control_plane.settings import parse_timings, with_timings  # noqa: PLC0415

    given = parse_timings(timings, TIMING_GROUPS)
    return {group: with_timings(settings_type(group)(**others.get(group, {})), given[group]) for group in TIMING_GROUPS}


def _ray(
    namespace: str, *, alone_in: str | None, kuberay_namespaces: tuple[str, ...], **options: Any
) -> dict[str, Any]:
    """What the operator of Ray is given: by options, and by the environment as KubeRay's operator reads it."""
    from gpu_control_plane.ray.options_from import options_from, timings_from  # noqa: PLC0415
    from gpu_control_plane.rules.trusted_namespaces import kuberay_namespaces as trusted  # noqa: PLC0415

    own = (alone_in,) if alone_in is not None else ()
    return {
        "options": options_from(os.environ, **options),
        "namespace": namespace,
        "trusted": trusted((*kuberay_namespaces, *own), own=namespace),
        "alone_in": alone_in,
        **timings_from(os.environ),
    }


def _build_operator(runtime: "Runtime", module: str, others: Mapping[str, Any], limits: "msgspec.Struct") -> None:
    operator = importlib.import_module(module)
    settings = operator.OperatorSettings(
        **others,
        images=operator.images_from(os.environ),
        upgrade_timing=operator.UpgradeTiming(limits=limits),
    )
    operator.build(runtime, settings)


if __name__ == "__main__":
    command()
