"""Starts what the command line has chosen: the agent of this node, those of all simulated nodes, or discovery alone.

`__main__` calls this as a program, with the options as JSON. Each program imports only what it needs.
"""

import socket
import sys
from functools import partial
from pathlib import Path
from typing import TypedDict

import msgspec

from gpu_control_plane.agent.footprint import import_sparingly, limit_buffers


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Those of the command line, by their names there."""

    simulated: bool
    discover: bool
    sysfs: str
    node: str | None
    hardware: str
    injection: str
    unpooled: str | None
    conflicting_resource: tuple[str, ...]
    labels: bool
    exporter: bool
    pod_names: bool
    validator: bool
    nvidia_fs: bool
    gdrcopy: bool
    burn_in: bool
    burn_in_seconds: float
    timings: tuple[str, ...]
    kubelet_folder: str
    cdi_folder: str
    container_runtime: str | None
    host_root: str
    driver_root: tuple[str, ...]
    container_driver_root: tuple[str, ...]
    configure_runtime: bool
    restart_runtime: bool
    runtime: str
    runtime_config: str | None
    runtime_state: str
    nvidia_runtime: str | None
    validations: str | None
    device_folder: str
    kubeconfig: str | None
    elect: bool
    namespace: str
    status_host: str
    status_port: int | None
    log_level: str


class _Process(TypedDict):
    """What every program of the agent is told."""

    kubeconfig: Path | None
    namespace: str
    status_host: str
    status_port: int | None
    log_level: str


def start(options: Options) -> int:
    """Run it to its end; returns the exit code."""
    name = options.node or socket.gethostname().lower()
    process = _Process(
        kubeconfig=Path(options.kubeconfig) if options.kubeconfig else None,
        namespace=options.namespace,
        status_host=options.status_host,
        status_port=options.status_port,
        log_level=options.log_level,
    )
    if options.simulated:
        return _fleet(options, process)
    if options.discover:
        return _discovery(options, name, process)
    if options.configure_runtime:
        _configure_runtime(options)
    return _node(options, name, process)


def _fleet(options: Options, process: _Process) -> int:
    from gpu_control_plane.agent.fleet.process import NAME, build  # noqa: PLC0415
    from gpu_control_plane.agent.step import RecoveryPolicy  # noqa: PLC0415
    from gpu_control_plane.agent.timings import health_timings  # noqa: PLC0415
    from gpu_control_plane.kube.process import main  # noqa: PLC0415

    recovery = RecoveryPolicy(seconds=health_timings(options.timings).recovery_period.total_seconds())
    fleet = partial(build, namespace=options.namespace, recovery=recovery)
    return main(NAME, fleet, elect=options.elect, **process)


def _discovery(options: Options, name: str, process: _Process) -> int:
    from gpu_control_plane.agent.backends.sysfs import Sysfs  # noqa: PLC0415
    from gpu_control_plane.agent.discovery.process import NAME, build  # noqa: PLC0415
    from gpu_control_plane.kube.process import main  # noqa: PLC0415

    discovery = partial(build, node=name, namespace=options.namespace, sysfs=Sysfs(Path(options.sysfs)))
    return main(NAME, discovery, elect=False, **process)


def _node(options: Options, name: str, process: _Process) -> int:
    from gpu_control_plane.agent.node.options import Hardware  # noqa: PLC0415
    from gpu_control_plane.agent.node.options import Options as NodeOptions  # noqa: PLC0415
    from gpu_control_plane.agent.node.process import NAME, build  # noqa: PLC0415
    from gpu_control_plane.agent.timings import health_timings  # noqa: PLC0415
    from gpu_control_plane.agent.vendors.registry import container_driver_roots  # noqa: PLC0415
    from gpu_control_plane.api.gpunodestate import Injection  # noqa: PLC0415
    from gpu_control_plane.kube.process import main  # noqa: PLC0415

    extras = (("nvidia-fs", options.nvidia_fs), ("gdrcopy", options.gdrcopy))
    chosen = NodeOptions(
        node=name,
        namespace=options.namespace,
        hardware=Hardware(options.hardware),
        injection=Injection(options.injection),
        unpooled=options.unpooled,
        conflicting_resources=options.conflicting_resource,
        labels=options.labels,
        exporter=options.exporter,
        pod_names=options.pod_names,
        validator=options.validator,
        extra_checks=frozenset(check for check, wanted in extras if wanted),
        burn_in=options.burn_in,
        burn_in_seconds=options.burn_in_seconds,
        health=health_timings(options.timings),
        kubelet=Path(options.kubelet_folder),
        cdi=Path(options.cdi_folder),
        container_runtime=Path(options.container_runtime) if options.container_runtime else None,
        host=Path(options.host_root),
        driver_roots=tuple(map(Path, options.driver_root)),
        container_driver_roots=tuple(map(Path, options.container_driver_root)) or container_driver_roots(),
        validations=Path(options.validations) if options.validations else None,
        simulated_devices=Path(options.device_folder),
    )
    return main(NAME, partial(build, options=chosen), elect=False, **process)


def _configure_runtime(options: Options) -> None:
    from gpu_control_plane.agent.runtimes.configure import configure_at_start  # noqa: PLC0415
    from gpu_control_plane.agent.runtimes.interface import RuntimeHandler, WantedConfig  # noqa: PLC0415
    from gpu_control_plane.agent.runtimes.setup import RuntimeName, RuntimeSetup  # noqa: PLC0415
    from gpu_control_plane.kube.logs import configure_logs  # noqa: PLC0415

    setup = RuntimeSetup(
        runtime=RuntimeName(options.runtime),
        config=Path(options.runtime_config) if options.runtime_config else None,
        state=Path(options.runtime_state),
        host=Path(options.host_root),
    )
    wanted = WantedConfig(
        spec_dirs=tuple(dict.fromkeys((*WantedConfig().spec_dirs, options.cdi_folder))),
        handler=RuntimeHandler(options.nvidia_runtime) if options.nvidia_runtime else None,
    )
    configure_logs(options.log_level)
    configure_at_start(setup.open(), wanted, setup.restarter() if options.restart_runtime else None)


if __name__ == "__main__":
    limit_buffers()
    import_sparingly()
    sys.exit(start(msgspec.json.decode(sys.argv[1], type=Options)))
