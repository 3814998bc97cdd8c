"""NVML's event set, for which a thread waits, and the XIDs that its events have reported.

NVML reports an XID once and keeps no list, so the list is kept here. An error while waiting says nothing about any one
card: the set is created anew, and every card has to be probed.
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_control_plane.agent.backends.interface import BackendError, DriverUnavailable
from gpu_control_plane.agent.vendors.nvidia.nvml.inventory import Card, address_of
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library, translated

MAX_REPORTS: Final = 32

_SINGLE_BIT: Final = 0x1
_DOUBLE_BIT: Final = 0x2
_XID: Final = 0x8
_UNAVAILABLE: Final = 0x4000
_RECOVERY: Final = 0x8000
_WANTED: Final = _SINGLE_BIT | _DOUBLE_BIT | _XID | _UNAVAILABLE | _RECOVERY

_WAIT_SECONDS: Final = 1.0
"""The longest wait inside the library: closing waits for it."""
_RETRY_SECONDS: Final = 5.0
"""Time between an error and the next attempt."""


class Events:
    """The driver's events about the cards of a node."""

    def __init__(
        self,
        library: Library,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = library
        self._sleep = sleep
        self._clock = clock
        self._set: Any = None
        self._in_use = threading.Lock()
        self._reports: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=MAX_REPORTS))
        self._clears: Counter[str] = Counter()

    def watch(self, cards: Mapping[str, Card]) -> None:
        """Register for the events of these cards, as far as each of them supports any."""
        with self._in_use:
            self._free()
            masks = {address: self._mask(card) for address, card in cards.items()}
            if not any(masks.values()):
                return
            self._set = self._library.ask("nvmlEventSetCreate")
            for address, mask in masks.items():
                if mask and self._set is not None:
                    self._library.ask("nvmlDeviceRegisterEvents", cards[address].handle, mask, self._set)

    def stop(self) -> None:
        """Unregister. Waits for a wait that is under way."""
        with self._in_use:
            self._free()

    def wait(self, seconds: float, cards: Mapping[str, Card]) -> frozenset[str]:
        """The cards that events were about; none when the time is up."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            try:
                found = self._wait_once(min(left, _WAIT_SECONDS))
            except self._library.nvml.NVMLError as error:
                return self._recover(error, min(left, _RETRY_SECONDS), cards)
            if found:
                return found
        return frozenset()

    def reports(self, address: str) -> tuple[int, ...]:
        return tuple(self._reports[address])

    def clears(self, address: str) -> int:
        """How often the reports were forgotten."""
        return self._clears[address]

    def forget(self, address: str) -> None:
        self._clears[address] += 1
        self._reports.pop(address, None)

    def _wait_once(self, seconds: float) -> frozenset[str]:
        with self._in_use:
            if self._set is not None:
                return self._events_within(seconds)
        self._sleep(seconds)
        return frozenset()

    def _events_within(self, seconds: float) -> frozenset[str]:
        """The next event, and those that came with it."""
        found: set[str] = set()
        timeout_ms = round(seconds * 1000)
        while len(found) < MAX_REPORTS:
            try:
                # Not through the library's lock: others may make their calls meanwhile.
                event = self._library.nvml.nvmlEventSetWait_v2(self._set, timeout_ms)
            except self._library.nvml.NVMLError_Timeout:
                break
            address = address_of(self._library, event.device)
            if event.eventType == _XID:
                self._reports[address].append(event.eventData)
            found.add(address)
            timeout_ms = 0
        return frozenset(found)

    def _recover(self, error: Exception, pause: float, cards: Mapping[str, Card]) -> frozenset[str]:
        trouble = translated(error)
        if isinstance(trouble, DriverUnavailable):
            raise trouble from error
        self._sleep(pause)
        self.watch(cards)
        return frozenset(cards)

    def _mask(self, card: Card) -> int:
        try:
            supported: int | None = self._library.ask("nvmlDeviceGetSupportedEventTypes", card.handle)
        except BackendError:
            return 0
        return _WANTED & (supported or 0)

    def _free(self) -> None:
        kept, self._set = self._set, None
        if kept is not None:
            self._library.ask("nvmlEventSetFree", kept)
