"""What an agent says about a card: who uses it, whether it works, and readings where their class has changed."""

from collections.abc import Callable, Sequence
from datetime import datetime

from gpu_control_plane.agent.backends.interface import Readings, Signals
from gpu_control_plane.agent.burnin.decide import Standing
from gpu_control_plane.agent.health import Verdict
from gpu_control_plane.agent.metrics import AgentMetrics
from gpu_control_plane.agent.telemetry import worth_telling
from gpu_control_plane.agent.views import Card, card_report
from gpu_control_plane.api.gpudevice import User
from gpu_control_plane.api.names import DeviceCondition
from gpu_control_plane.kube.apply import Applier, differs
from gpu_control_plane.kube.conditions import FALSE, condition, find
from gpu_control_plane.kube.errors import NotFound


class CardReports:
    """Keeps the agent's share of a GPUDevice true; a card that has nothing new costs no write."""

    def __init__(self, applier: Applier, metrics: AgentMetrics, now: Callable[[], datetime]) -> None:
        self._applier = applier
        self._metrics = metrics
        self._now = now

    async def report(
        self,
        card: Card,
        users: Sequence[User],
        found: Verdict,
        readings: Readings,
        signals: Signals,
        *,
        burn_in: Standing | None = None,
    ) -> None:
        """Say how the card is, if that is not what its status says already.

        Its health and its burn-in are told in one write: nobody sees a healthy card that still has to be tested
        without seeing that it has.
        """
        now = self._now()
        before = find(card.status.conditions, DeviceCondition.HEALTHY)
        health = condition(
            card.status.conditions, DeviceCondition.HEALTHY, found.healthy, found.reason, found.message, now=now
        )
        telemetry = worth_telling(card.status.telemetry, readings, signals, now)
        desired = (
            card_report(
                tuple(users), telemetry, health, burn_in.says(card.status.conditions, now), burn_in=burn_in.record
            )
            if burn_in
            else card_report(tuple(users), telemetry, health)
        )
        if not differs(desired, card):
            return
        try:
            await self._applier.apply(Card, card.name, desired, None, subresource="status")
        except NotFound:
            return  # It has just been deleted: the cache is about to tell.
        if health.status == FALSE and (before is None or before.status != FALSE):
            self._metrics.faults.labels(health.reason).inc()
