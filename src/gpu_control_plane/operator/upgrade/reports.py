"""What campaigns have last reported. It is told only when it is news, and kept where nobody knows better."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from gpu_control_plane.api.nvidia.status import UpgradeReport


class Reports:
    """By campaign. `tell` is called whenever one has changed, has come or has gone."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._held: dict[str, UpgradeReport] = {}
        self._unknown: AbstractSet[str] | None = None
        """Campaigns whose policy nobody can read; None until there was a look at all campaigns."""

    def get(self, name: str, last: UpgradeReport | None) -> UpgradeReport | None:
        """The report, None while the campaign is off. Where this process does not know, it is what was `last` told: a
        restart is no news."""
        return self._held.get(name, last if self._unknown is None or name in self._unknown else None)

    def put(self, name: str, found: UpgradeReport) -> None:
        if self._held.get(name) != found:
            self._held[name] = found
            self._tell()

    def doubt(self) -> None:
        """This process does not know them any more."""
        self._held, self._unknown = {}, None

    def settle(self, active: AbstractSet[str], unreadable: AbstractSet[str]) -> None:
        """All campaigns have been looked at: these are active, of those nobody knows, and all others are off."""
        gone = self._held.keys() - active - unreadable
        news = bool(gone) or self._unknown != unreadable
        self._unknown = unreadable
        self._held = {name: held for name, held in self._held.items() if name not in gone}
        if news:
            self._tell()
