"""What simulated cards remember, as long as real ones would.

A card keeps its instances when the agent dies and loses them when the node starts anew, so they are kept in a file
with the boot id they belong to. A card in another card's place knows nothing of its predecessor.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_control_plane.agent.backends.interface import BackendError, Instance


class CardState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one card holds."""

    uuid: str
    """Whose state this is."""
    enabled: bool = False
    """Whether MIG is on."""
    created: int = 0
    """How many instances were ever cut."""
    instances: tuple[Instance, ...] = ()
    cleared: tuple[int, ...] = ()
    """Error reports in the machine's document that were cleared."""


class _File(msgspec.Struct, frozen=True):
    boot: str
    cards: dict[str, CardState] = {}


class CardMemory:
    """The states of the cards of one node. Written through, so that dying at any moment loses nothing."""

    def __init__(self, boot: str, file: Path | None = None) -> None:
        self._boot = boot
        self._file = file
        self._cards: dict[str, CardState] = {}
        if file is not None and file.exists():
            self._recall(file)

    def of(self, address: str, uuid: str) -> CardState:
        state = self._cards.get(address)
        return state if state is not None and state.uuid == uuid else CardState(uuid)

    def put(self, address: str, state: CardState) -> None:
        if self.of(address, state.uuid) != state:
            self._cards[address] = state
            self._write()

    def keep_only(self, boot: str, uuids: Mapping[str, str]) -> None:
        """The node runs under this boot id, with these cards by address: whatever belongs to others is forgotten."""
        cards = {at: state for at, state in self._cards.items() if boot == self._boot and uuids.get(at) == state.uuid}
        if (boot, cards) != (self._boot, self._cards):
            self._boot, self._cards = boot, cards
            self._write()

    def _recall(self, file: Path) -> None:
        try:
            kept = msgspec.json.decode(file.read_bytes(), type=_File)
        except msgspec.DecodeError as error:
            raise BackendError(
                f"{file} cannot be understood ({error}). Remove it: the cards are whole again then."
            ) from error
        if kept.boot == self._boot:
            self._cards = kept.cards

    def _write(self) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(_File(self._boot, self._cards)))
        fresh.replace(self._file)
