"""The metrics of the cards, under the names of dcgm-exporter, beside the agent's own."""

from collections.abc import Callable

from gpu_control_plane.agent.backends.interface import DriverHung
from gpu_control_plane.agent.exporter.scrape import Exporter, Users
from gpu_control_plane.agent.exporter.series import labelled_card
from gpu_control_plane.agent.exporter.xids import XidLog
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.node.hardware_watch import DriverReleased, HardwareWatch


class CardMetrics:
    """Describes the cards by the latest probe, and reads them when Prometheus scrapes."""

    def __init__(self, node: str, watch: HardwareWatch, users: Callable[[], Users]) -> None:
        self._node = node
        self._xids = XidLog()
        self._exporter = Exporter(watch, self._xids, users)

    def describe(self, hardware: HardwareSnapshot) -> None:
        """The hardware has been probed."""
        driver = hardware.node_facts.driver
        version = driver.version if driver else ""
        for card in hardware.observed.values():
            self._xids.observe(card.address, card.signals.xids)
        self._exporter.describe(
            labelled_card(card.hardware, card.details, card.instances, hostname=self._node, driver_version=version)
            for card in hardware.observed.values()
        )

    async def exposition(self) -> bytes:
        """What the cards measure; nothing while the driver is released, or hangs."""
        try:
            return await self._exporter.exposition()
        except (DriverHung, DriverReleased):
            return b""
