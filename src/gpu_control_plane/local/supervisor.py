"""The process behind `kubectl gpu up`: it owns a cluster, restarts what dies, and stops everything on SIGTERM.

Started detached as `python -m gpu_control_plane.local.supervisor FOLDER`; the folder holds its configuration. SIGTERM
stops the cluster and keeps its data, SIGUSR1 restarts what is down without further delay. When this process is killed,
its children die with it.
"""

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Protocol

from msgspec.structs import replace

from gpu_control_plane.local.cluster import Cluster
from gpu_control_plane.local.components import HEALTH, Component, Health
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.identity import identify
from gpu_control_plane.local.logs import tail
from gpu_control_plane.local.ports import LOOPBACK
from gpu_control_plane.local.processes import describe_exit
from gpu_control_plane.local.progress import Step
from gpu_control_plane.local.restarts import Restarts
from gpu_control_plane.local.sidecars import SidecarRecord, Sidecars
from gpu_control_plane.local.state_file import (
    ClusterRecord,
    ComponentPhase,
    ComponentRecord,
    Phase,
    SupervisorConfig,
    read_config,
    write_record,
)

_logger = logging.getLogger("supervisor")

_IDLE_CHECK_SECONDS = 5.0
_BUSY_CHECK_SECONDS = 0.1


class SupervisedProcess(Protocol):
    """What the supervisor needs of a component of the control plane, or of a program of a node."""

    name: str
    version: str
    log: Path
    health: Health | None

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def exit_code(self) -> int | None: ...

    def healthy(self) -> bool: ...

    def launch(self) -> None: ...


class ComponentProcess:
    """A component of the control plane, as the supervisor sees it."""

    def __init__(self, cluster: Cluster, component: Component, version: str) -> None:
        self.name = str(component)
        self.version = version
        self.log = cluster.log(component)
        self.health: Health | None = HEALTH[component]
        self._cluster = cluster
        self._component = component

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._cluster.plan.ports.of(self._component)}"

    @property
    def pid(self) -> int | None:
        return self._cluster.pid(self._component)

    @property
    def exit_code(self) -> int | None:
        return self._cluster.exit_code(self._component)

    def healthy(self) -> bool:
        return self._cluster.healthy(self._component)

    def launch(self) -> None:
        self._cluster.launch(self._component)


class Supervisor:
    """Compares what runs with what should run, starts what is down, and writes the state file."""

    def __init__(self, folder: Path, config: SupervisorConfig) -> None:
        self._folder = folder
        self._config = config
        self._cluster = Cluster(folder, config.binaries, config.settings, progress=self)
        self._control_plane = [
            ComponentProcess(self._cluster, component, config.binaries[component].version)
            for component in config.settings.components
        ]
        self._history: dict[str, Restarts] = {}
        self._components: dict[str, ComponentRecord] = {}
        self._sidecars = Sidecars(folder, log_death)
        self._sidecar_records: tuple[SidecarRecord, ...] = ()
        self._stopping = False
        self._restart_now = False
        self._signals = _Signals()
        own = identify(os.getpid())
        if own is None:
            raise LocalError("This process cannot find itself in the list of processes; is /proc mounted?")
        self._written: ClusterRecord | None = None
        self._record = ClusterRecord(name=config.settings.name, phase=Phase.STARTING, supervisor=own, since=_now())

    def run(self) -> int:
        self._signals.listen(self._on_signal)
        self._write()
        try:
            self._cluster.start()
            self._write(phase=Phase.RUNNING, server=self._cluster.server)
            _logger.info("the cluster is ready at %s", self._cluster.server)
            while not self._stopping:
                self._check()
        except _Stopped:
            pass
        except LocalError as error:
            _logger.error("%s", error)  # noqa: TRY400  the message is complete without a traceback
            self._write(phase=Phase.FAILED, error=str(error))
            return 1
        self._write(phase=Phase.STOPPING)
        self._sidecars.stop()
        self._cluster.stop()
        self._write(phase=Phase.STOPPED)
        _logger.info("the cluster is stopped")
        return 0

    def note(self, text: str) -> None:
        """Part of `Progress`: the cluster's notes go to the log."""
        _logger.info("%s", text)

    def detail(self, text: str) -> None:
        """Part of `Step`."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Part of `Progress`: the state file is written when the start of a component begins and when it ends."""
        self._observe()
        yield self
        _logger.info("%s: done", title)
        self._observe()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT) and not self._stopping:
            self._stopping = True
            if self._record.phase is Phase.STARTING:
                raise _Stopped
        self._restart_now |= number == signal.SIGUSR1

    def _check(self) -> None:
        now = time.monotonic()
        restart_now, self._restart_now = self._restart_now, False
        for process in self._supervised():
            self._history[process.name] = self._restart_if_due(process, now, restart_now=restart_now)
        self._sidecar_records = self._sidecars.reconcile(restart_now=restart_now)
        self._observe()
        settled = all(record.phase is ComponentPhase.RUNNING for record in self._components.values()) and all(
            record.process for record in self._sidecar_records
        )
        self._signals.wait(_IDLE_CHECK_SECONDS if settled else _BUSY_CHECK_SECONDS)

    def _supervised(self) -> list[SupervisedProcess]:
        """All supervised processes, in the order of starting; those of nodes once the control plane runs."""
        return [*self._control_plane, *self._cluster.nodes.programs]

    def _restart_if_due(self, process: SupervisedProcess, now: float, *, restart_now: bool) -> Restarts:
        history = self._history.get(process.name, Restarts())
        code = process.exit_code
        if code is None:
            return history
        if history.next_at is None:
            how = describe_exit(code)
            log_death(process.name, how, process.log)
            self._components[process.name] = replace(self._components[process.name], last_exit=how)
            history = history.died(now)
        if restart_now:
            history = history.without_delay(now)
        if history.due(now):
            _logger.info("starting %s again", process.name)
            try:
                process.launch()
            except LocalError as error:  # such as a program whose machine is down and is restarted next
                _logger.error("%s", error)  # noqa: TRY400
            history = history.launched(now)
        return history

    def _observe(self) -> None:
        for process in self._supervised():
            old = self._components.get(process.name) or _first_record(process)
            self._components[process.name] = self._observed(process, old)
        self._write(server=self._cluster.server)

    def _observed(self, supervised: SupervisedProcess, old: ComponentRecord) -> ComponentRecord:
        restarts = self._history.get(supervised.name, Restarts()).total
        address = supervised.address
        process = identify(supervised.pid) if supervised.pid else None
        if process is None:
            phase = ComponentPhase.STARTING if restarts == 0 and old.process is None else ComponentPhase.RESTARTING
            return replace(old, phase=phase, address=address, process=None, since=None, restarts=restarts)
        if process != old.process:
            old = replace(old, phase=ComponentPhase.STARTING, process=process, since=_now(), took=None)
        if old.phase is not ComponentPhase.RUNNING and supervised.healthy():
            took = (_now() - old.since).total_seconds() if old.since else None
            old = replace(old, phase=ComponentPhase.RUNNING, took=took)
        return replace(old, address=address, restarts=restarts)

    def _write(self, **changes: object) -> None:
        components = tuple(self._components.values())
        sidecars = self._sidecar_records
        if changes.get("phase") in (Phase.STOPPED, Phase.FAILED):
            components = tuple(
                replace(record, phase=ComponentPhase.STOPPED, process=None, since=None) for record in components
            )
            sidecars = tuple(replace(record, process=None, since=None) for record in sidecars)
        record = replace(self._record, components=components, sidecars=sidecars, **changes)
        if record == self._written:
            return
        self._record = record
        try:
            write_record(self._folder, record)
            self._written = record
        except OSError as error:  # a full disk must not bring a running cluster down
            _logger.error("the state file cannot be written: %s", error)  # noqa: TRY400


class _Signals:
    """Waiting that a signal ends: by a pipe, because a signal handler must not use the locks of what it interrupts."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)

    def listen(self, handler: Callable[[int, FrameType | None], None]) -> None:
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, handler)

    def wait(self, seconds: float) -> None:
        ready, _, _ = select.select([self._read_end], [], [], seconds)
        if ready:
            os.read(self._read_end, 4096)


class _Stopped(Exception):
    """SIGTERM or SIGINT came while the cluster was still starting."""


def _first_record(process: SupervisedProcess) -> ComponentRecord:
    return ComponentRecord(
        name=process.name, version=process.version, address="", log=process.log, health=process.health
    )


def log_death(name: str, how: str, log: Path) -> None:
    """What died, how, and what it said last: that is usually why, such as a disk without room."""
    _logger.warning("%s ended: %s. The end of %s:\n%s", name, how, log, tail(log))


def _now() -> datetime:
    return datetime.now(UTC)


def main(folder: Path) -> int:
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    return Supervisor(folder, read_config(folder)).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
