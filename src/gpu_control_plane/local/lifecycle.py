"""Starting and stopping a detached cluster. Both may be repeated, interrupted, and run twice at once."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gpu_control_plane.local.binaries import ensure_binaries
from gpu_control_plane.local.cluster import require_room
from gpu_control_plane.local.components import Component, Settings
from gpu_control_plane.local.detached import DetachedSupervisor
from gpu_control_plane.local.errors import ComponentFailed, LocalError, StateUnreadable
from gpu_control_plane.local.folders import cluster_folder
from gpu_control_plane.local.identity import ProcessIdentity, identify, is_alive
from gpu_control_plane.local.kubectl import link_kubectl
from gpu_control_plane.local.locks import exclusive, owner
from gpu_control_plane.local.node.real_nodes import NODES_FOLDER, clear_nodes, node_shortcuts
from gpu_control_plane.local.node.requirements import system_programs
from gpu_control_plane.local.ports import require_free
from gpu_control_plane.local.progress import Progress, duration
from gpu_control_plane.local.sidecars import Sidecar, remove_sidecar, write_sidecar
from gpu_control_plane.local.simulated_nodes import add_simulated_nodes
from gpu_control_plane.local.state_file import (
    ClusterRecord,
    ComponentPhase,
    Phase,
    SupervisorConfig,
    is_cluster_folder,
    read_config,
    read_record,
    remove_record,
    write_config,
    write_record,
)
from gpu_control_plane.local.status import admin_client, port_of
from gpu_control_plane.local.versions import NODE_PROGRAMS, SERVICE_PROGRAMS

_POLL_SECONDS = 0.05
_STOP_TIMEOUT_SECONDS = 40.0
_DEFAULT_NODES = 3
_ON_NODES = (*NODE_PROGRAMS, *SERVICE_PROGRAMS)

type InstallApi = Callable[[Path], list[str]]
"""Installs our CRDs into the cluster of a kubeconfig and names them."""


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `kubectl gpu up`."""

    name: str = "gpu"
    nodes: int | None = None
    """Simulated nodes to have; None means a few, and none in a cluster with real nodes."""
    real_nodes: int = 0
    port: int | None = None
    timeout: float = 120.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` found and did."""

    was_running: bool
    real_nodes: dict[str, Path] = {}
    """Every real node the cluster has, and a short path to its folder."""
    resources: tuple[str, ...]


def bring_up(options: UpOptions, progress: Progress, install_api: InstallApi) -> Result:
    """Make sure that the cluster runs, that our API is in it and that it has its simulated nodes."""
    folder = cluster_folder(options.name)
    with _locked(folder, progress):
        running = _already_running(folder, progress)
        record = _repair(folder, running, options, progress) if running else _start(folder, options, progress)
        link_kubectl(ensure_binaries(["kubectl"], progress).path("kubectl"))
        with progress.step("Installing the GPU API"):
            resources = install_api(folder / "kubeconfig")
        real = node_shortcuts(folder / NODES_FOLDER, _real_nodes(folder))
        default = 0 if real else _DEFAULT_NODES
        if count := default if options.nodes is None else options.nodes:
            with progress.step(f"Adding {count} simulated nodes") as step:
                add_simulated_nodes(admin_client(folder), port_of(record), count, step)
    return Result(was_running=running is not None, real_nodes=real, resources=tuple(resources))


def bring_down(name: str, progress: Progress, *, keep_data: bool = False) -> bool:
    """Stop the cluster, whatever state it is in, and remove it. False when there was nothing to do."""
    folder = cluster_folder(name)
    with _locked(folder, progress):
        if not folder.exists():
            _lock(folder).unlink()
            return False
        record = _record_or_owner(folder)
        if record and is_alive(record.supervisor):
            with progress.step("Stopping the cluster"):
                _stop(record.supervisor)
        _kill_orphans(record)
        clear_nodes(folder / NODES_FOLDER)
        if keep_data and record:
            write_record(folder, msgspec.structs.replace(record, phase=Phase.STOPPED, error=None))
        if not keep_data:
            with progress.step("Removing its data"):
                _remove(folder)
                _lock(folder).unlink()
    return True


def start_sidecar(name: str, sidecar: Sidecar, *, timeout: float = 20.0) -> Path:
    """Run a program beside a cluster that is up, for as long as the cluster runs; returns its log."""
    folder = cluster_folder(name)
    record = read_record(folder)
    if record is None or not is_alive(record.supervisor):
        raise LocalError(f"The cluster {name} does not run. Start it with `kubectl gpu up --name {name}`.")
    write_sidecar(folder, sidecar)
    os.kill(record.supervisor.pid, signal.SIGUSR1)

    def started(record: ClusterRecord) -> bool:
        return any(each.sidecar == sidecar and each.process for each in record.sidecars)

    supervisor = DetachedSupervisor(folder, record.supervisor)
    _wait_for(folder, supervisor, timeout, started, f"{sidecar.name} was not running")
    return folder / "logs" / f"{sidecar.name}.log"


def stop_sidecar(name: str, sidecar: str) -> None:
    """Stop a sidecar for good; harmless where there is none."""
    folder = cluster_folder(name)
    remove_sidecar(folder, sidecar)
    record = read_record(folder)
    if record and is_alive(record.supervisor):
        os.kill(record.supervisor.pid, signal.SIGUSR1)


def _already_running(folder: Path, progress: Progress) -> ClusterRecord | None:
    record = read_record(folder)
    if record and is_alive(record.supervisor):
        if record.phase is not Phase.STOPPING:
            return record
        with progress.step("Waiting for the cluster to stop first"):
            _wait_until_gone(record.supervisor, _STOP_TIMEOUT_SECONDS)
    _kill_orphans(record)
    return None


def _start(folder: Path, options: UpOptions, progress: Progress) -> ClusterRecord:
    if options.port is not None:
        require_free(options.port, "API server")
    # Never fewer than before: a cluster whose data was kept comes back with the nodes it had.
    nodes = tuple(f"real-{number}" for number in range(1, max(options.real_nodes, len(_real_nodes(folder))) + 1))
    if nodes:
        system_programs(services=True)
    binaries = ensure_binaries([*Component, *(_ON_NODES if nodes else ())], progress)
    settings = Settings(
        name=options.name, port=options.port, nodes=nodes, services=bool(nodes), start_timeout=options.timeout
    )
    require_room(folder)
    remove_record(folder)
    write_config(folder, SupervisorConfig(settings=settings, binaries=binaries))
    supervisor = DetachedSupervisor.start(folder)
    try:
        for component in settings.components:
            with progress.step(f"Starting {component} {binaries[component].version}"):
                _wait_for_component(folder, component, supervisor, options.timeout)
        if not nodes:
            return _wait_for_phase(folder, supervisor, options.timeout)
        with progress.step(f"Starting {', '.join(nodes)} with kubelet, containerd, kube-proxy and CoreDNS"):
            return _wait_for_phase(folder, supervisor, options.timeout)
    except BaseException:
        if supervisor.process:
            _stop(supervisor.process)
        raise


def _repair(folder: Path, record: ClusterRecord, options: UpOptions, progress: Progress) -> ClusterRecord:
    """Leave a running cluster as it is, and restart what is down in it without further delay."""
    if options.port is not None and record.server and port_of(record) != options.port:
        raise LocalError(
            f"The cluster {options.name} already runs at {record.server}. To move it to port {options.port}, stop it"
            f" with `kubectl gpu down --name {options.name} --keep-data` first."
        )
    if options.real_nodes > len(_real_nodes(folder)):
        raise LocalError(
            f"The cluster {options.name} already runs, and gets real nodes only when it starts. Stop it with"
            f" `kubectl gpu down --name {options.name} --keep-data`, and try again: its objects are kept."
        )
    os.kill(record.supervisor.pid, signal.SIGUSR1)
    supervisor = DetachedSupervisor(folder, record.supervisor)
    for component in record.components:
        if component.phase is not ComponentPhase.RUNNING:
            with progress.step(f"Starting {component.name} again"):
                _wait_for_component(folder, component.name, supervisor, options.timeout)
    return _wait_for_phase(folder, supervisor, options.timeout)


def _real_nodes(folder: Path) -> tuple[str, ...]:
    """The real nodes that the cluster was last started with."""
    try:
        return read_config(folder).settings.nodes
    except (FileNotFoundError, msgspec.DecodeError):
        return ()


def _wait_for_component(folder: Path, component: str, supervisor: DetachedSupervisor, timeout: float) -> ClusterRecord:
    def ready(record: ClusterRecord) -> bool:
        return any(each.name == component and each.phase is ComponentPhase.RUNNING for each in record.components)

    return _wait_for(folder, supervisor, timeout, ready, f"{component} was not ready")


def _wait_for_phase(folder: Path, supervisor: DetachedSupervisor, timeout: float) -> ClusterRecord:
    return _wait_for(
        folder, supervisor, timeout, lambda record: record.phase is Phase.RUNNING, "the cluster was not ready"
    )


def _wait_for(
    folder: Path, supervisor: DetachedSupervisor, timeout: float, done: Callable[[ClusterRecord], bool], otherwise: str
) -> ClusterRecord:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        ended = not supervisor.alive()
        record = read_record(folder)
        if record and record.error:
            raise ComponentFailed(record.error)
        if record and done(record):
            return record
        if ended:
            raise ComponentFailed(
                f"The cluster's supervisor ended. The end of {supervisor.log}:\n{supervisor.log_tail()}"
            )
        time.sleep(_POLL_SECONDS)
    raise ComponentFailed(
        f"After {duration(timeout)} {otherwise}. The logs are in {folder / 'logs'}; a longer wait is --timeout."
    )


def _stop(supervisor: ProcessIdentity) -> None:
    _signal(supervisor, signal.SIGTERM)
    if not _wait_until_gone(supervisor, _STOP_TIMEOUT_SECONDS):
        _signal(supervisor, signal.SIGKILL)
        _wait_until_gone(supervisor, _STOP_TIMEOUT_SECONDS)


def _kill_orphans(record: ClusterRecord | None) -> None:
    """Components of a killed supervisor die with it; kill those that did not."""
    if record is None:
        return
    components = [component.process for component in record.components]
    sidecars = [sidecar.process for sidecar in record.sidecars]
    for process in (*components, *sidecars):
        if process:
            _signal(process, signal.SIGKILL)
            _wait_until_gone(process, _STOP_TIMEOUT_SECONDS)


def _signal(process: ProcessIdentity, number: signal.Signals) -> None:
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _wait_until_gone(process: ProcessIdentity, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while is_alive(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _remove(folder: Path) -> None:
    """Remove a cluster's folder, but not one that holds something else."""
    if any(folder.iterdir()) and not is_cluster_folder(folder):
        raise LocalError(f"{folder} holds no cluster, so it was not removed. Look at it, and remove it yourself.")
    shutil.rmtree(folder)


def _record_or_owner(folder: Path) -> ClusterRecord | None:
    """The record; when it cannot be read, one that names the process that holds the folder's lock."""
    try:
        return read_record(folder)
    except StateUnreadable:
        pid = owner(folder / ".lock")
        supervisor = identify(pid) if pid else None
        if supervisor is None:
            return None
        return ClusterRecord(name=folder.name, phase=Phase.RUNNING, supervisor=supervisor, since=datetime.now(UTC))


def _locked(folder: Path, progress: Progress) -> contextlib.AbstractContextManager[None]:
    """`up` and `down` of one cluster wait for each other. The lock file is beside the folder, which may be removed."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return exclusive(_lock(folder), progress, f"which is starting or stopping the cluster {folder.name}")


def _lock(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"
