"""The state of a cluster: its state file, checked against the processes and servers that it names."""

import enum
import http.client
from datetime import datetime
from pathlib import Path

import msgspec

from gpu_control_plane import __version__
from gpu_control_plane.local.credentials import KeyPair
from gpu_control_plane.local.folders import cluster_folder
from gpu_control_plane.local.identity import is_alive
from gpu_control_plane.local.kubectl import find_kubectl
from gpu_control_plane.local.sidecars import SidecarRecord
from gpu_control_plane.local.simulated_nodes import NodeSummary, list_nodes
from gpu_control_plane.local.state_file import ClusterRecord, ComponentPhase, ComponentRecord, Phase, read_record
from gpu_control_plane.local.sync_client import SyncClient


class ClusterState(enum.StrEnum):
    ABSENT = "Absent"
    STARTING = "Starting"
    RUNNING = "Running"
    DEGRADED = "Degraded"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FAILED = "Failed"

    @property
    def alive(self) -> bool:
        return self not in (ClusterState.ABSENT, ClusterState.STOPPED, ClusterState.FAILED)


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    state: ComponentPhase
    ready: bool
    version: str
    address: str
    pid: int | None
    since: datetime | None
    restarts: int
    last_exit: str | None
    log: str


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `kubectl gpu status --local -o json`: fields are added, never renamed or removed."""

    name: str
    state: ClusterState
    folder: str
    kubeconfig: str | None = None
    kubectl: str | None = None
    """A kubectl of the cluster's version."""
    server: str | None = None
    supervisor_pid: int | None = None
    since: datetime | None = None
    components: tuple[ComponentStatus, ...] = ()
    nodes: tuple[NodeSummary, ...] | None = None
    """None while the API server does not answer."""
    error: str | None = None


def cluster_status(name: str) -> ClusterStatus:
    """Look at a cluster without changing anything."""
    folder = cluster_folder(name)
    record = read_record(folder)
    if record is None:
        return ClusterStatus(name=name, state=ClusterState.ABSENT, folder=str(folder))
    alive = is_alive(record.supervisor)
    kubectl = find_kubectl()
    client = admin_client(folder) if alive and record.server else None
    components = tuple(_component(component, client) for component in record.components)
    sidecars = tuple(_sidecar(sidecar) for sidecar in record.sidecars)
    nodes = None
    error = record.error
    if client:
        try:
            nodes = tuple(list_nodes(client, port_of(record)))
        except (OSError, http.client.HTTPException) as problem:
            error = error or f"The API server at {record.server} does not answer ({problem})."
    state = _state(record, alive, (*components, *sidecars))
    if not alive and record.phase in (Phase.STARTING, Phase.RUNNING, Phase.STOPPING):
        error = f"Its supervisor (process {record.supervisor.pid}) was killed. The data is kept."
    return ClusterStatus(
        name=name,
        state=state,
        folder=str(folder),
        kubeconfig=str(folder / "kubeconfig"),
        kubectl=str(kubectl) if kubectl else None,
        server=record.server,
        supervisor_pid=record.supervisor.pid if alive else None,
        since=record.since if alive else None,
        components=(*components, *sidecars),
        nodes=nodes,
        error=error,
    )


def admin_client(folder: Path) -> SyncClient:
    """Requests as the administrator of a cluster that has been started."""
    pki = folder / "pki"
    return SyncClient(pki / "ca.crt", KeyPair(pki / "admin.crt", pki / "admin.key"))


def port_of(record: ClusterRecord) -> int:
    return int((record.server or "").rpartition(":")[2])


def _component(record: ComponentRecord, client: SyncClient | None) -> ComponentStatus:
    alive = client is not None and is_alive(record.process)
    state = record.phase if alive or record.phase is ComponentPhase.RESTARTING else ComponentPhase.STOPPED
    return ComponentStatus(
        name=record.name,
        state=state if client else ComponentPhase.STOPPED,
        ready=alive and client is not None and _answers(record, client),
        version=record.version,
        address=record.address,
        pid=record.process.pid if alive and record.process else None,
        since=record.since if alive else None,
        restarts=record.restarts,
        last_exit=record.last_exit,
        log=str(record.log),
    )


def _answers(record: ComponentRecord, client: SyncClient) -> bool:
    if record.health is None:
        return record.phase is ComponentPhase.RUNNING
    host, _, port = record.address.rpartition(":")
    return client.healthy(int(port or 0), record.health.path, secure=record.health.secure, host=host)


def _sidecar(record: SidecarRecord) -> ComponentStatus:
    """A sidecar in the shape of a component: it is ready while it runs."""
    alive = is_alive(record.process)
    return ComponentStatus(
        name=record.sidecar.name,
        state=ComponentPhase.RUNNING if alive else ComponentPhase.STOPPED,
        ready=alive,
        version=f"v{__version__}",
        address="",
        pid=record.process.pid if alive and record.process else None,
        since=record.since if alive else None,
        restarts=record.restarts,
        last_exit=record.last_exit,
        log=str(record.log),
    )


def _state(record: ClusterRecord, alive: bool, components: tuple[ComponentStatus, ...]) -> ClusterState:
    if not alive:
        return ClusterState.FAILED if record.phase is Phase.FAILED else ClusterState.STOPPED
    if record.phase is Phase.RUNNING:
        return ClusterState.RUNNING if all(component.ready for component in components) else ClusterState.DEGRADED
    return ClusterState.STARTING if record.phase is Phase.STARTING else ClusterState.STOPPING
