"""Bringing a detached cluster up and down. Both may be repeated, interrupted, and run twice at once."""

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
from gpu_control_plane.local.companions import Companion, remove_companion, write_companion
from gpu_control_plane.local.components import Component, Settings
from gpu_control_plane.local.detached import DetachedSupervisor
from gpu_control_plane.local.errors import ComponentFailed, LocalError, StateUnreadable
from gpu_control_plane.local.folders import cluster_folder
from gpu_control_plane.local.identity import ProcessIdentity, identify, is_alive
from gpu_control_plane.local.kubectl import link_kubectl
from gpu_control_plane.local.locks import exclusive, owner
from gpu_control_plane.local.node.fleet import NODES_FOLDER, clear_nodes, node_shortcuts
from gpu_control_plane.local.node.requirements import system_programs
from gpu_control_plane.local.nodes import add_simulated_nodes
from gpu_control_plane.local.ports import require_free
from gpu_control_plane.local.progress import Progress, seconds
from gpu_control_plane.local.record import (
    ComponentPhase,
    Order,
    Phase,
    Record,
    is_cluster_folder,
    read_order,
    read_record,
    remove_record,
    write_order,
    write_record,
)
from gpu_control_plane.local.status import admin_access, port_of
from gpu_control_plane.local.versions import NODE_PROGRAMS, SERVICE_PROGRAMS

_POLL = 0.05
_STOP_PATIENCE = 40.0
_USUAL_NODES = 3
_ON_NODES = (*NODE_PROGRAMS, *SERVICE_PROGRAMS)

type InstallApi = Callable[[Path], list[str]]
"""Installs our CRDs into the cluster of a kubeconfig and names them."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for with `up`."""

    name: str = "gpu"
    nodes: int | None = None
    """Simulated nodes to have; a few, unless the cluster has real ones, where nothing is said."""
    real_nodes: int = 0
    port: int | None = None
    timeout: float = 120.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What `up` found and did."""

    was_running: bool
    real_nodes: dict[str, Path] = {}
    """Every real node the cluster has, and a short way to its folder."""
    resources: tuple[str, ...]


def bring_up(wish: Wish, progress: Progress, install_api: InstallApi) -> Result:
    """Make sure that the cluster runs, that our API is in it and that it has its simulated nodes."""
    folder = cluster_folder(wish.name)
    with _alone(folder, progress):
        running = _already_running(folder, progress)
        record = _mend(folder, running, wish, progress) if running else _start(folder, wish, progress)
        link_kubectl(ensure_binaries(["kubectl"], progress).path("kubectl"))
        with progress.step("Installing the GPU API"):
            resources = install_api(folder / "kubeconfig")
        real = node_shortcuts(folder / NODES_FOLDER, _real_nodes(folder))
        usual = 0 if real else _USUAL_NODES
        if count := usual if wish.nodes is None else wish.nodes:
            with progress.step(f"Adding {count} simulated nodes") as step:
                add_simulated_nodes(admin_access(folder), port_of(record), count, step)
    return Result(was_running=running is not None, real_nodes=real, resources=tuple(resources))


def bring_down(name: str, progress: Progress, *, keep_data: bool = False) -> bool:
    """Stop the cluster, whatever state it is in, and remove it. False when there was nothing to do."""
    folder = cluster_folder(name)
    with _alone(folder, progress):
        if not folder.exists():
            _lock(folder).unlink()
            return False
        record = _record_or_owner(folder)
        if record and is_alive(record.supervisor):
            with progress.step("Stopping the cluster"):
                _stop(record.supervisor)
        _end_leftovers(record)
        clear_nodes(folder / NODES_FOLDER)
        if keep_data and record:
            write_record(folder, msgspec.structs.replace(record, phase=Phase.STOPPED, error=None))
        if not keep_data:
            with progress.step("Removing its data"):
                _remove(folder)
                _lock(folder).unlink()
    return True


def run_beside(name: str, companion: Companion, *, timeout: float = 20.0) -> Path:
    """Run a program beside a cluster that is up, for as long as the cluster runs; returns its log."""
    folder = cluster_folder(name)
    record = read_record(folder)
    if record is None or not is_alive(record.supervisor):
        raise LocalError(f"The cluster {name} does not run. Start it with `kubectl gpu up --name {name}`.")
    write_companion(folder, companion)
    os.kill(record.supervisor.pid, signal.SIGUSR1)

    def started(record: Record) -> bool:
        return any(each.companion == companion and each.process for each in record.companions)

    supervisor = DetachedSupervisor(folder, record.supervisor)
    _wait_for(folder, supervisor, timeout, started, f"{companion.name} was not running")
    return folder / "logs" / f"{companion.name}.log"


def stop_beside(name: str, companion: str) -> None:
    """Stop a companion for good; harmless where there is none."""
    folder = cluster_folder(name)
    remove_companion(folder, companion)
    record = read_record(folder)
    if record and is_alive(record.supervisor):
        os.kill(record.supervisor.pid, signal.SIGUSR1)


def _already_running(folder: Path, progress: Progress) -> Record | None:
    record = read_record(folder)
    if record and is_alive(record.supervisor):
        if record.phase is not Phase.STOPPING:
            return record
        with progress.step("Waiting for the cluster to stop first"):
            _wait_until_gone(record.supervisor, _STOP_PATIENCE)
    _end_leftovers(record)
    return None


def _start(folder: Path, wish: Wish, progress: Progress) -> Record:
    if wish.port is not None:
        require_free(wish.port, "API server")
    # None are taken away: a cluster whose data was kept comes back with the nodes it had.
    nodes = tuple(f"real-{number}" for number in range(1, max(wish.real_nodes, len(_real_nodes(folder))) + 1))
    if nodes:
        system_programs(services=True)
    binaries = ensure_binaries([*Component, *(_ON_NODES if nodes else ())], progress)
    settings = Settings(name=wish.name, port=wish.port, nodes=nodes, services=bool(nodes), start_timeout=wish.timeout)
    require_room(folder)
    remove_record(folder)
    write_order(folder, Order(settings=settings, binaries=binaries))
    supervisor = DetachedSupervisor.start(folder)
    try:
        for component in settings.components:
            with progress.step(f"Starting {component} {binaries[component].version}"):
                _wait_for_component(folder, component, supervisor, wish.timeout)
        if not nodes:
            return _wait_for_phase(folder, supervisor, wish.timeout)
        with progress.step(f"Starting {', '.join(nodes)} with kubelet, containerd, kube-proxy and CoreDNS"):
            return _wait_for_phase(folder, supervisor, wish.timeout)
    except BaseException:
        if supervisor.process:
            _stop(supervisor.process)
        raise


def _mend(folder: Path, record: Record, wish: Wish, progress: Progress) -> Record:
    """A cluster that runs keeps running as it is; what is down in it is started without further waiting."""
    if wish.port is not None and record.server and port_of(record) != wish.port:
        raise LocalError(
            f"The cluster {wish.name} already runs at {record.server}. To move it to port {wish.port}, stop it with"
            f" `kubectl gpu down --name {wish.name} --keep-data` first."
        )
    if wish.real_nodes > len(_real_nodes(folder)):
        raise LocalError(
            f"The cluster {wish.name} already runs, and gets real nodes only when it starts. Stop it with"
            f" `kubectl gpu down --name {wish.name} --keep-data`, and try again: its objects are kept."
        )
    os.kill(record.supervisor.pid, signal.SIGUSR1)
    supervisor = DetachedSupervisor(folder, record.supervisor)
    for component in record.components:
        if component.phase is not ComponentPhase.RUNNING:
            with progress.step(f"Starting {component.name} again"):
                _wait_for_component(folder, component.name, supervisor, wish.timeout)
    return _wait_for_phase(folder, supervisor, wish.timeout)


def _real_nodes(folder: Path) -> tuple[str, ...]:
    """The real nodes that the cluster was last started with."""
    try:
        return read_order(folder).settings.nodes
    except (FileNotFoundError, msgspec.DecodeError):
        return ()


def _wait_for_component(folder: Path, component: str, supervisor: DetachedSupervisor, timeout: float) -> Record:
    def ready(record: Record) -> bool:
        return any(each.name == component and each.phase is ComponentPhase.RUNNING for each in record.components)

    return _wait_for(folder, supervisor, timeout, ready, f"{component} was not ready")


def _wait_for_phase(folder: Path, supervisor: DetachedSupervisor, timeout: float) -> Record:
    return _wait_for(
        folder, supervisor, timeout, lambda record: record.phase is Phase.RUNNING, "the cluster was not ready"
    )


def _wait_for(
    folder: Path, supervisor: DetachedSupervisor, timeout: float, done: Callable[[Record], bool], otherwise: str
) -> Record:
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
        time.sleep(_POLL)
    raise ComponentFailed(
        f"After {seconds(timeout)} {otherwise}. The logs are in {folder / 'logs'}; a longer wait is --timeout."
    )


def _stop(supervisor: ProcessIdentity) -> None:
    _signal(supervisor, signal.SIGTERM)
    if not _wait_until_gone(supervisor, _STOP_PATIENCE):
        _signal(supervisor, signal.SIGKILL)
        _wait_until_gone(supervisor, _STOP_PATIENCE)


def _end_leftovers(record: Record | None) -> None:
    """Components of a killed supervisor die with it; this is for those that did not."""
    if record is None:
        return
    components = [component.process for component in record.components]
    companions = [companion.process for companion in record.companions]
    for process in (*components, *companions):
        if process:
            _signal(process, signal.SIGKILL)
            _wait_until_gone(process, _STOP_PATIENCE)


def _signal(process: ProcessIdentity, number: signal.Signals) -> None:
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _wait_until_gone(process: ProcessIdentity, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while is_alive(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def _remove(folder: Path) -> None:
    """Remove a cluster's folder, and nothing that only happens to have its name."""
    if any(folder.iterdir()) and not is_cluster_folder(folder):
        raise LocalError(f"{folder} holds no cluster, so it was not removed. Look at it, and remove it yourself.")
    shutil.rmtree(folder)


def _record_or_owner(folder: Path) -> Record | None:
    """The record; when it cannot be read, as much of it as is needed to stop whoever owns the folder."""
    try:
        return read_record(folder)
    except StateUnreadable:
        pid = owner(folder / ".lock")
        supervisor = identify(pid) if pid else None
        if supervisor is None:
            return None
        return Record(name=folder.name, phase=Phase.RUNNING, supervisor=supervisor, since=datetime.now(UTC))


def _alone(folder: Path, progress: Progress) -> contextlib.AbstractContextManager[None]:
    """`up` and `down` of one cluster wait for each other. The lock lies beside the folder, which may be removed."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return exclusive(_lock(folder), progress, f"which is starting or stopping the cluster {folder.name}")


def _lock(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"
