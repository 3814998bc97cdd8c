"""The cards' own metrics: told with the agent's, in the names of dcgm-exporter."""

from collections.abc import Callable

from gpu_control_plane.agent.exporter.scrape import Exporter, Users
from gpu_control_plane.agent.exporter.series import subject
from gpu_control_plane.agent.exporter.xids import XidLog
from gpu_control_plane.agent.node.picture import Picture
from gpu_control_plane.agent.node.watch import HardwareWatch, Quiesced


class CardMetrics:
    """Follows the picture of the hardware, and reads the cards when somebody scrapes."""

    def __init__(self, node: str, watch: HardwareWatch, users: Callable[[], Users]) -> None:
        self._node = node
        self._xids = XidLog()
        self._exporter = Exporter(watch, self._xids, users)

    def follow(self, picture: Picture) -> None:
        """The hardware has been looked at."""
        driver = picture.known_facts.driver
        version = driver.version if driver else ""
        for card in picture.seen.values():
            self._xids.observe(card.address, card.signals.xids)
        self._exporter.describe(
            subject(card.hardware, card.details, card.instances, hostname=self._node, driver_version=version)
            for card in picture.seen.values()
        )

    async def exposition(self) -> bytes:
        """What the cards measure; nothing while the driver is let go of."""
        try:
            return await self._exporter.exposition()
        except Quiesced:
            return b""
