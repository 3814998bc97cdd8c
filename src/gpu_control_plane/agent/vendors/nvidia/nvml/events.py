"""The driver's news: a set of events that a thread waits for, and the error reports that came with them.

NVML tells an XID once and keeps no list, so the list is kept here. An error while waiting says nothing about any one
card: the set is made anew and every card is to be looked at.
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_control_plane.agent.backends.interface import BackendError, DriverUnavailable
from gpu_control_plane.agent.vendors.nvidia.nvml.inventory import Card, address_of
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library, translated

MOST_REPORTS: Final = 32

_SINGLE_BIT: Final = 0x1
_DOUBLE_BIT: Final = 0x2
_XID: Final = 0x8
_UNAVAILABLE: Final = 0x4000
_RECOVERY: Final = 0x8000
_WANTED: Final = _SINGLE_BIT | _DOUBLE_BIT | _XID | _UNAVAILABLE | _RECOVERY

_SLICE: Final = 1.0
"""Seconds of one wait inside the library: what closing has to wait for at most."""
_PAUSE: Final = 5.0
"""Seconds between an error and the next attempt."""


class Events:
    """The news about the cards of a node."""

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
        self._reports: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=MOST_REPORTS))
        self._clears: Counter[str] = Counter()

    def watch(self, cards: Mapping[str, Card]) -> None:
        """Hear about these cards, as far as each of them tells anything."""
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
        """Hear nothing any more. Waits for a wait that is under way."""
        with self._in_use:
            self._free()

    def wait(self, seconds: float, cards: Mapping[str, Card]) -> frozenset[str]:
        """The cards that there is news about; none when the time is up."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            try:
                found = self._wait_once(min(left, _SLICE))
            except self._library.nvml.NVMLError as error:
                return self._recover(error, min(left, _PAUSE), cards)
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
                return self._heard(seconds)
        self._sleep(seconds)
        return frozenset()

    def _heard(self, seconds: float) -> frozenset[str]:
        """One event, and those that have come with it."""
        found: set[str] = set()
        patience = round(seconds * 1000)
        while len(found) < MOST_REPORTS:
            try:
                # Not through the library's lock: others may make their calls meanwhile.
                event = self._library.nvml.nvmlEventSetWait_v2(self._set, patience)
            except self._library.nvml.NVMLError_Timeout:
                break
            address = address_of(self._library, event.device)
            if event.eventType == _XID:
                self._reports[address].append(event.eventData)
            found.add(address)
            patience = 0
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
