"""A real Kubernetes control plane as child processes of this one, on the loopback interface.

A cluster is a folder: data, certificates, ports and logs live in it, so stopping and starting again brings back the
same cluster at the same address. Calls block; asyncio code uses `asyncio.to_thread`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from gpu_control_plane.local import processes
from gpu_control_plane.local.certificates import Authority
from gpu_control_plane.local.components import (
    FIELDS,
    FRONT_PROXY,
    HEALTH,
    SERVICE_CIDR,
    ClusterPlan,
    Component,
    Identities,
    Ports,
    Settings,
    first_address,
    flags,
)
from gpu_control_plane.local.credentials import KeyPair, write_private
from gpu_control_plane.local.disk import room_for
from gpu_control_plane.local.errors import ClusterBusy, ComponentFailed, LocalError
from gpu_control_plane.local.folders import STATE_VARIABLE
from gpu_control_plane.local.kubeconfig import write_kubeconfig
from gpu_control_plane.local.locks import take
from gpu_control_plane.local.logs import tail
from gpu_control_plane.local.node.real_nodes import NODES_FOLDER, RealNodes
from gpu_control_plane.local.ports import LOOPBACK, free_port, is_free, require_free
from gpu_control_plane.local.programs import Binaries
from gpu_control_plane.local.progress import Lines, Progress, duration
from gpu_control_plane.local.sync_client import SyncClient

_PORT_TAKEN = "address already in use"
_ATTEMPTS = 3
_POLL_SECONDS = 0.05
_STOP_TIMEOUT_SECONDS = 10.0
_ROOM_BYTES = 200_000_000  # etcd allocates 64 MB for its write-ahead log twice, and logs grow
_ADMINS = "system:masters"
_USERS = {
    Component.CONTROLLER_MANAGER: ("system:kube-controller-manager", None),
    Component.SCHEDULER: ("system:kube-scheduler", None),
    Component.KWOK: ("kwok", _ADMINS),
}


class Cluster:
    """Owns the processes of one cluster folder. They end with `stop`, or with this process, whichever comes first."""

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        settings: Settings | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.kubeconfig = self.folder / "kubeconfig"
        self.settings = settings or Settings()
        self._binaries = binaries
        self._progress = progress or Lines(sys.stderr)
        self._processes: dict[Component, subprocess.Popen[bytes]] = {}
        self._lock: int | None = None
        self._plan: ClusterPlan | None = None
        self._client: SyncClient | None = None
        self.nodes = RealNodes(self.folder / NODES_FOLDER, self.settings, binaries)

    @property
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self.plan.ports.apiserver}"

    @property
    def authority(self) -> Path:
        """The certificate to trust."""
        return self.plan.identities.authority.certificate

    @property
    def admin(self) -> KeyPair:
        """The client certificate of the cluster's administrator."""
        return self.plan.identities.admin

    @property
    def plan(self) -> ClusterPlan:
        if self._plan is None:
            raise LocalError(f"The cluster in {self.folder} was not started yet. Call start() first.")
        return self._plan

    @property
    def client(self) -> SyncClient:
        """Short requests as the administrator."""
        if self._client is None:
            self._client = SyncClient(self.authority, self.admin)
        return self._client

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start every component of the settings and return when all are ready. When one fails, all are stopped.

        In a cluster that runs already, only what is down is started.
        """
        if self._lock is not None:
            for component in self.settings.components:
                self.start_component(component)
            self.nodes.start(self.plan, self.client, self._progress)
            return
        try:
            self._prepare()
            for wave in _waves(self.settings.components):
                for component in wave:
                    self.launch(component)
                for component in wave:
                    with self._progress.step(f"Starting {component}"):
                        self._wait_or_move(component)
            self.nodes.start(self.plan, self.client, self._progress)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything, in the opposite order of starting, and keep the data. Safe to repeat."""
        try:
            self.nodes.stop()
        finally:
            self._stop_components()

    def stop_component(self, component: Component | str, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop one component and wait until it is gone. SIGKILL makes it a crash."""
        if process := self._processes.get(Component(component)):
            processes.end(process, number, timeout=_STOP_TIMEOUT_SECONDS)

    def start_component(self, component: Component | str) -> None:
        """Start a stopped component again, with the same port and data, and wait until it is ready."""
        component = Component(component)
        if self.exit_code(component) is None and component in self._processes:
            return
        self.launch(component)
        self._wait_or_move(component)

    def launch(self, component: Component) -> None:
        """Start one component without waiting for it; `healthy` says when it is ready."""
        program = str(self._binaries.path(component))
        with self.log(component).open("ab") as log:
            self._processes[component] = processes.spawn(
                [program, *flags(component, self.plan)], output=log, environ=_environment(self.folder), cwd=self.folder
            )

    def pid(self, component: Component | str) -> int | None:
        """The process of a running component."""
        process = self._processes.get(Component(component))
        return process.pid if process and process.poll() is None else None

    def exit_code(self, component: Component | str) -> int | None:
        """How a component ended; None while it runs or when it was never started."""
        process = self._processes.get(Component(component))
        return process.poll() if process else None

    def healthy(self, component: Component | str) -> bool:
        """Whether a component runs and says that it is ready."""
        component = Component(component)
        health = HEALTH[component]
        port = self.plan.ports.of(component)
        return self.pid(component) is not None and self.client.healthy(port, health.path, secure=health.secure)

    def log(self, component: Component | str) -> Path:
        return self.folder / "logs" / f"{component}.log"

    def _stop_components(self) -> None:
        for wave in reversed(_waves(tuple(self._processes))):
            for component in wave:
                processes.send(self._processes[component], signal.SIGTERM)
            # One SIGTERM each: at a second one, Kubernetes programs exit at once without an orderly end.
            for component in wave:
                processes.await_end(self._processes[component], _STOP_TIMEOUT_SECONDS)
        self._processes.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _prepare(self) -> None:
        missing = [component for component in self.settings.components if component not in self._binaries.programs]
        if missing:
            raise LocalError(f"No binaries were given for {', '.join(missing)}. Ask ensure_binaries for them too.")
        require_room(self.folder)
        for part in ("etcd", "logs", "pki"):
            (self.folder / part).mkdir(exist_ok=True, mode=0o700)
        self._lock = _lock_folder(self.folder)
        network = self.nodes.claim()
        gateway = network.gateway if network else None
        services = network.ranges.services if network else SERVICE_CIDR
        self._plan = ClusterPlan(
            folder=self.folder,
            settings=self.settings,
            ports=_choose_ports(self.folder, self.settings.port),
            identities=self._identify(gateway, services),
            gateway=gateway,
            service_cidr=services,
        )
        self._client = None
        self._write_addresses()

    def _identify(self, gateway: str | None, services: str) -> Identities:
        authority = Authority(self.folder / "pki")
        front_proxy = Authority(self.folder / "pki" / "front-proxy")
        service = "kubernetes.default.svc"
        hosts = [LOOPBACK, "localhost", "kubernetes", "kubernetes.default", service, f"{service}.cluster.local"]
        hosts += [first_address(services), *([gateway] if gateway else [])]
        for component in self.settings.components:
            if component in _USERS:
                user, group = _USERS[component]
                authority.client(component, user, group)
        return Identities(
            authority=authority.pair,
            serving=authority.server("server", hosts),
            admin=authority.client("admin", "kubernetes-admin", _ADMINS),
            service_accounts=authority.signing_key("service-accounts"),
            front_proxy_authority=front_proxy.pair.certificate,
            front_proxy=front_proxy.client("client", FRONT_PROXY),
            kubelet_client=authority.client("kubelet-client", "kube-apiserver-kubelet-client", _ADMINS),
        )

    def _write_addresses(self) -> None:
        """Every file that contains a port: the list of ports and the kubeconfigs."""
        write_private(self.folder / "ports.json", msgspec.json.encode(self.plan.ports))
        pki = self.folder / "pki"
        clients = {
            self.plan.kubeconfig(component): KeyPair(pki / f"{component}.crt", pki / f"{component}.key")
            for component in self.settings.components
            if component in _USERS
        }
        for path, client in {**clients, self.kubeconfig: self.admin}.items():
            write_kubeconfig(path, name=self.settings.name, server=self.server, authority=self.authority, client=client)

    def _wait_or_move(self, component: Component) -> None:
        """Wait until a component is ready. One whose port another process has taken meanwhile gets another port."""
        deadline = time.monotonic() + self.settings.start_timeout
        for attempt in range(_ATTEMPTS):
            if self._wait_until_ready(component, deadline):
                return
            movable = component is not Component.APISERVER or self.settings.port is None
            if not (movable and attempt + 1 < _ATTEMPTS and _PORT_TAKEN in tail(self.log(component))):
                break
            self._move(component)
            self.launch(component)
        raise self._failure(component)

    def _move(self, component: Component) -> None:
        ports = msgspec.structs.replace(self.plan.ports, **{field: free_port() for field in FIELDS[component]})
        self._plan = msgspec.structs.replace(self.plan, ports=ports)
        self._write_addresses()

    def _wait_until_ready(self, component: Component, deadline: float) -> bool:
        while not self.healthy(component):
            if self.exit_code(component) is not None or time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _failure(self, component: Component) -> ComponentFailed:
        code = self.exit_code(component)
        outcome = (
            f"was not ready after {duration(self.settings.start_timeout)}"
            if code is None
            else f"ended with code {code}"
        )
        log = self.log(component)
        return ComponentFailed(f"{component} {outcome}. The end of {log}:\n{tail(log)}")


def require_room(folder: Path) -> None:
    """Refuse to start on a full disk: it would show as some error of some component later."""
    with room_for("a cluster", _ROOM_BYTES, folder, STATE_VARIABLE):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _waves(components: tuple[Component, ...]) -> list[list[Component]]:
    """Groups that start at the same time: etcd, then the API server, then its clients."""
    order = [[Component.ETCD], [Component.APISERVER], [*Component][2:]]
    return [wave for group in order if (wave := [component for component in group if component in components])]


def _choose_ports(folder: Path, wanted: int | None) -> Ports:
    """The ports of the last start where they are still free, so that a cluster keeps its address."""
    if wanted is not None:
        require_free(wanted, "API server")
    chosen = dict.fromkeys(Ports.__struct_fields__, 0)
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        chosen |= msgspec.structs.asdict(msgspec.json.decode((folder / "ports.json").read_bytes(), type=Ports))
    chosen["apiserver"] = wanted or chosen["apiserver"]
    taken: set[int] = set()
    for field, port in chosen.items():
        while port in taken or not port or not is_free(port):
            port = free_port()  # noqa: PLW2901
        taken.add(port)
        chosen[field] = port
    return Ports(**chosen)


def _lock_folder(folder: Path) -> int:
    """Lock the folder: two processes with one folder would corrupt it."""
    lock = take(folder / ".lock")
    if lock is None:
        raise ClusterBusy(
            f"The cluster in {folder} is run by another process. Stop that one, or use another folder or --name."
        )
    return lock


def _environment(folder: Path) -> dict[str, str]:
    """A clean environment: the user's kubeconfig, proxy or Go settings must not reach the components."""
    return {"PATH": os.defpath, "HOME": str(folder)}
