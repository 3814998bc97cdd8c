"""Writes the status of NVIDIADrivers: at most once in a while for each, and only what differs."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from gpu_control_plane.api.nvidia.status import StackStatus, UpgradeReport
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.kube import Key, Requeue, Runtime
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.pace import Pace
from gpu_control_plane.operator.charge import Charge
from gpu_control_plane.operator.drivers.concerns import asked_for
from gpu_control_plane.operator.drivers.controller import Drivers, Result
from gpu_control_plane.operator.drivers.events import tell_driver
from gpu_control_plane.operator.drivers.status import Picture, driver_status
from gpu_control_plane.operator.stack.readiness import Standing
from gpu_control_plane.operator.stack.reporter import beside, status_differs, write_status
from gpu_control_plane.operator.stack.standings import Standings, tolerations_of
from gpu_control_plane.operator.stack.status import rival_condition

_PAUSE: Final = 1.0


class DriverReporter:
    """The controller that reports on NVIDIADrivers."""

    def __init__(
        self, runtime: Runtime, charge: Charge, drivers: Drivers, standings: Standings, *,
        namespace: str, upgrade: Callable[[str], UpgradeReport | None], now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self._runtime = runtime
        self._charge = charge
        self._drivers = drivers
        self._standings = standings
        self._namespace = namespace
        self._upgrade = upgrade
        self._clock = now
        self._pace = Pace(_PAUSE)
        self._bare = False
        self._controller = runtime.controller("drivers-status", self._report, workers=1)
        self._controller.watch(drivers.stored)
        standings.on_change(self.wake)
        drivers.on_result = self.wake

    def wake(self) -> None:
        """Something changed that a status may tell: a DaemonSet, a pod, an upgrade, the rival."""
        for stored in self._drivers.stored:
            self._controller.enqueue(stored.key)

    async def _report(self, key: Key) -> Requeue | None:
        stored = self._drivers.stored.at(key)
        if stored is None or stored.deleting:
            self._pace.forget(key)
            return None
        if later := self._pace.wait(key):
            return later
        desired = self._desired(stored)
        if desired is None or not status_differs(stored.status, desired):
            return None
        self._pace.mark(key)
        try:
            written = await write_status(self._runtime.client, stored, desired)
        except NotFound:
            return None
        tell_driver(self._runtime.events, stored, desired)
        if desired.states and not written.status.states:
            self._bare = True
        return None

    def _desired(self, stored: StoredNVIDIADriver) -> StackStatus | None:
        """What to write; None while nobody can say."""
        now, generation = self._clock().replace(microsecond=0), stored.metadata.generation
        if rival := self._charge.rival.active():
            return beside(stored.status, rival_condition(stored.status.conditions, rival, generation, now))
        found = self._charge.in_force()
        if found is not None and found.spec is None:
            return None
        asked = asked_for(found.spec if found is not None else None)
        if asked and stored.name not in self._drivers.results:
            return None
        status = driver_status(stored.status, self._picture(stored, asked=asked))
        if self._bare:
            return StackStatus(state=status.state, namespace=status.namespace, conditions=status.conditions)
        return status

    def _picture(self, stored: StoredNVIDIADriver, *, asked: bool) -> Picture:
        generation = stored.metadata.generation
        result = self._drivers.results.get(stored.name) or Result(generation=0)
        return Picture(
            generation=generation,
            namespace=self._namespace,
            asked_for=asked,
            trouble=result.trouble,
            standings=self._standing(result),
            left_out=result.left_out,
            unlabelled=self._drivers.book.unlabelled(stored.name),
            nodes=result.nodes,
            converged=result.generation == generation,
            upgrade=self._upgrade(stored.name),
            unknown=_unknown(stored),
            now=self._clock().replace(microsecond=0),
        )

    def _standing(self, result: Result) -> dict[str, Standing]:
        return {
            manifest["metadata"]["name"]: self._standings.of(
                manifest["metadata"]["name"], tolerations_of(manifest["spec"]["template"]["spec"])
            )
            for manifest in result.daemonsets
        }


def _unknown(stored: StoredNVIDIADriver) -> tuple[str, ...]:
    try:
        return stored.read().unknown
    except UnreadableSpec:
        return ()
