"""The process behind `kubectl gpu up`: it owns a cluster, starts again what dies, and stops everything when told to.

Started detached as `python -m gpu_control_plane.local.supervisor FOLDER`; the folder holds its order. SIGTERM stops the
cluster and keeps its data, SIGUSR1 asks not to wait any longer before restarting what is down. When this process is
killed, its children die with it.
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

from msgspec.structs import replace

from gpu_control_plane.local.cluster import Cluster
from gpu_control_plane.local.companions import CompanionRecord, Companions
from gpu_control_plane.local.errors import LocalError
from gpu_control_plane.local.identity import identify
from gpu_control_plane.local.parts import ComponentPart, Part
from gpu_control_plane.local.processes import describe_exit
from gpu_control_plane.local.progress import Step
from gpu_control_plane.local.record import (
    ComponentPhase,
    ComponentRecord,
    Order,
    Phase,
    Record,
    read_order,
    write_record,
)
from gpu_control_plane.local.restarts import Restarts

_logger = logging.getLogger("supervisor")

_QUIET_CHECK = 5.0
_BUSY_CHECK = 0.1


class Supervisor:
    """Compares what runs with what should, acts on the difference, and writes down what it sees."""

    def __init__(self, folder: Path, order: Order) -> None:
        self._folder = folder
        self._order = order
        self._cluster = Cluster(folder, order.binaries, order.settings, progress=self)
        self._control_plane = [
            ComponentPart(self._cluster, component, order.binaries[component].version)
            for component in order.settings.components
        ]
        self._history: dict[str, Restarts] = {}
        self._components: dict[str, ComponentRecord] = {}
        self._companions = Companions(folder)
        self._companion_records: tuple[CompanionRecord, ...] = ()
        self._stopping = False
        self._hurry = False
        self._news = _Signals()
        me = identify(os.getpid())
        if me is None:
            raise LocalError("This process cannot find itself in the list of processes; is /proc mounted?")
        self._written: Record | None = None
        self._record = Record(name=order.settings.name, phase=Phase.STARTING, supervisor=me, since=_now())

    def run(self) -> int:
        self._news.listen(self._on_signal)
        self._write()
        try:
            self._cluster.start()
            self._write(phase=Phase.RUNNING, server=self._cluster.server)
            _logger.info("the cluster is ready at %s", self._cluster.server)
            while not self._stopping:
                self._look_after()
        except _Stopped:
            pass
        except LocalError as error:
            _logger.error("%s", error)  # noqa: TRY400  the sentence is all there is to know
            self._write(phase=Phase.FAILED, error=str(error))
            return 1
        self._write(phase=Phase.STOPPING)
        self._companions.stop()
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
        """Part of `Progress`: every start of a component is written down when it begins and when it ends."""
        self._observe()
        yield self
        _logger.info("%s: done", title)
        self._observe()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT) and not self._stopping:
            self._stopping = True
            if self._record.phase is Phase.STARTING:
                raise _Stopped
        self._hurry |= number == signal.SIGUSR1

    def _look_after(self) -> None:
        now = time.monotonic()
        hurry, self._hurry = self._hurry, False
        for part in self._parts():
            self._history[part.name] = self._restart_if_due(part, now, hurry=hurry)
        self._companion_records = self._companions.tend(hurry=hurry)
        self._observe()
        settled = all(record.phase is ComponentPhase.RUNNING for record in self._components.values()) and all(
            record.process for record in self._companion_records
        )
        self._news.wait(_QUIET_CHECK if settled else _BUSY_CHECK)

    def _parts(self) -> list[Part]:
        """What there is to look after, in the order of starting; nodes join when the control plane is there."""
        return [*self._control_plane, *self._cluster.nodes.programs]

    def _restart_if_due(self, part: Part, now: float, *, hurry: bool) -> Restarts:
        history = self._history.get(part.name, Restarts())
        code = part.exit_code
        if code is None:
            return history
        if history.next_at is None:
            how = describe_exit(code)
            _logger.warning("%s ended: %s", part.name, how)
            self._components[part.name] = replace(self._components[part.name], last_exit=how)
            history = history.died(now)
        if hurry:
            history = history.hurried(now)
        if history.due(now):
            _logger.info("starting %s again", part.name)
            try:
                part.launch()
            except LocalError as error:  # such as a program whose machine is down, and is next in turn
                _logger.error("%s", error)  # noqa: TRY400
            history = history.launched(now)
        return history

    def _observe(self) -> None:
        for part in self._parts():
            old = self._components.get(part.name) or _first_record(part)
            self._components[part.name] = self._observed(part, old)
        self._write(server=self._cluster.server)

    def _observed(self, part: Part, old: ComponentRecord) -> ComponentRecord:
        restarts = self._history.get(part.name, Restarts()).total
        process = identify(part.pid) if part.pid else None
        if process is None:
            phase = ComponentPhase.STARTING if restarts == 0 and old.process is None else ComponentPhase.RESTARTING
            return replace(old, phase=phase, address=part.address, process=None, since=None, restarts=restarts)
        if process != old.process:
            old = replace(old, phase=ComponentPhase.STARTING, process=process, since=_now(), took=None)
        if old.phase is not ComponentPhase.RUNNING and part.healthy():
            took = (_now() - old.since).total_seconds() if old.since else None
            old = replace(old, phase=ComponentPhase.RUNNING, took=took)
        return replace(old, address=part.address, restarts=restarts)

    def _write(self, **changes: object) -> None:
        components = tuple(self._components.values())
        companions = self._companion_records
        if changes.get("phase") in (Phase.STOPPED, Phase.FAILED):
            components = tuple(
                replace(record, phase=ComponentPhase.STOPPED, process=None, since=None) for record in components
            )
            companions = tuple(replace(record, process=None, since=None) for record in companions)
        record = replace(self._record, components=components, companions=companions, **changes)
        if record == self._written:
            return
        self._record = record
        try:
            write_record(self._folder, record)
            self._written = record
        except OSError as error:  # a full disk must not bring a running cluster down
            _logger.error("the record cannot be written: %s", error)  # noqa: TRY400


class _Signals:
    """Waiting that a signal ends. A pipe, because a handler must not touch the locks of what it interrupts."""

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
    """A signal came while the cluster was still starting."""


def _first_record(part: Part) -> ComponentRecord:
    return ComponentRecord(name=part.name, version=part.version, address="", log=part.log, health=part.health)


def _now() -> datetime:
    return datetime.now(UTC)


def main(folder: Path) -> int:
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    return Supervisor(folder, read_order(folder)).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
