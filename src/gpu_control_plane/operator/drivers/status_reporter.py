"""What the status of each NVIDIADriver should be."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from gpu_control_plane.api.nvidia.status import StackStatus, UpgradeReport
from gpu_control_plane.api.nvidia.stored import StoredNVIDIADriver, UnreadableSpec
from gpu_control_plane.kube import Runtime
from gpu_control_plane.operator.active_policy import Charge
from gpu_control_plane.operator.drivers.controller import Drivers, Result
from gpu_control_plane.operator.drivers.events import tell_driver
from gpu_control_plane.operator.drivers.predicates import asked_for
from gpu_control_plane.operator.drivers.status import Picture, driver_status
from gpu_control_plane.operator.stack.daemonset_readiness import Standings, tolerations_of
from gpu_control_plane.operator.stack.readiness import Standing
from gpu_control_plane.operator.stack.status import rival_condition
from gpu_control_plane.operator.status_writer import StatusReporter, beside


class DriverReporter:
    """Reports on NVIDIADrivers."""

    def __init__(
        self, runtime: Runtime, charge: Charge, drivers: Drivers, standings: Standings, *,
        namespace: str, now: Callable[[], datetime],
        upgrade: Callable[[str, UpgradeReport | None], UpgradeReport | None],
    ) -> None:  # fmt: skip
        self._charge = charge
        self._drivers = drivers
        self._standings = standings
        self._namespace = namespace
        self._upgrade = upgrade
        self._clock = now
        tell = partial(tell_driver, runtime.events)
        self.wake = StatusReporter(runtime, "drivers-status", drivers.stored, self._desired, tell).wake
        standings.on_change(self.wake)
        drivers.on_result = self.wake

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
        return driver_status(stored.status, self._picture(stored, asked=asked))

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
            upgrade=self._upgrade(stored.name, stored.status.upgrade),
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
