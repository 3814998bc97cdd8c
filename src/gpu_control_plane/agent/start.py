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
    undo_runtime: bool
    runtime: str
    runtime_config: str | None
    runtime_program: str | None
    runtime_unit: str | None
    runtime_state: str
    nvidia_runtime: str | None
    default_runtime: bool
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
    problem = _prepare_runtime(options) if options.configure_runtime or options.undo_runtime else None
    return _node(options, name, process, runtime_problem=problem)


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


def _node(options: Options, name: str, process: _Process, *, runtime_problem: str | None) -> int:
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
        runtime_state=Path(options.runtime_state),
        runtime_problem=runtime_problem,
        host=Path(options.host_root),
        driver_roots=tuple(map(Path, options.driver_root)),
        container_driver_roots=tuple(map(Path, options.container_driver_root)) or container_driver_roots(),
        validations=Path(options.validations) if options.validations else None,
        simulated_devices=Path(options.device_folder),
    )
    return main(NAME, partial(build, options=chosen), elect=False, **process)


def _prepare_runtime(options: Options) -> str | None:
    """Configure the container runtime, or restore it, as the options say; why that was not possible, if it was not."""
    from gpu_control_plane.agent.runtime_at_start import run_at_start  # noqa: PLC0415
    from gpu_control_plane.kube.logs import configure_logs  # noqa: PLC0415

    place = [f"--state={options.runtime_state}", f"--host-root={options.host_root}", "--by-agent"]
    configure_logs(options.log_level)
    if options.undo_runtime:
        from gpu_control_plane.agent.driver.host_paths import HostPaths  # noqa: PLC0415
        from gpu_control_plane.agent.runtime_record import edited_files  # noqa: PLC0415

        written = edited_files(HostPaths(Path(options.host_root)).local(options.runtime_state))
        return run_at_start("undo", (*place, "--restart")) if written else None
    given = {
        "--runtime": options.runtime,
        "--config": options.runtime_config,
        "--program": options.runtime_program,
        "--unit": options.runtime_unit,
        "--nvidia-runtime": options.nvidia_runtime,
    }
    place += [f"{name}={value}" for name, value in given.items() if value]
    place += [f"--cdi-folder={folder}" for folder in dict.fromkeys(("/etc/cdi", "/var/run/cdi", options.cdi_folder))]
    place += ["--default"] if options.default_runtime else []
    place += ["--restart"] if options.restart_runtime else []
    return run_at_start("set", place)


if __name__ == "__main__":
    limit_buffers()
    import_sparingly()
    sys.exit(start(msgspec.json.decode(sys.argv[1], type=Options)))
