"""What simulated cards remember, as long as real ones would.

A card keeps its MIG instances when the agent dies and loses them when the node reboots. The agent of a real node keeps
them in a file with the boot id they belong to; the simulated fleet keeps them in the node's document. A card in another
card's place knows nothing of its predecessor.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpu_control_plane.agent.backends.interface import BackendError


class InstanceRecord(msgspec.Struct, frozen=True, array_like=True):
    """A MIG instance, written as a short list: a document may hold many."""

    profile: str
    start: int
    size: int
    number: int
    """How many instances the card had had when it was created: its identity follows from that."""
    gpu_instance: int


class CardState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one card holds."""

    uuid: str
    """The card whose state this is."""
    enabled: bool = False
    """Whether MIG is on."""
    created: int = 0
    """How many instances were ever created."""
    instances: tuple[InstanceRecord, ...] = ()
    cleared: tuple[int, ...] = ()
    """Error reports in the machine's document that were cleared."""
    clears: int = 0
    """How often error reports were cleared."""


class _File(msgspec.Struct, frozen=True):
    boot: str
    cards: dict[str, CardState] = {}


class CardMemory:
    """The states of the cards of one node. With a file every change is written at once, so that dying loses nothing."""

    def __init__(self, boot: str, cards: Mapping[str, CardState], file: Path | None = None) -> None:
        self._boot = boot
        self._file = file
        self._cards = dict(cards)
        if file is not None and file.exists():
            self._recall(file)

    @property
    def cards(self) -> dict[str, CardState]:
        """The cards that remember anything, by address."""
        return {address: state for address, state in sorted(self._cards.items()) if state != CardState(state.uuid)}

    def of(self, address: str, uuid: str) -> CardState:
        state = self._cards.get(address)
        return state if state is not None and state.uuid == uuid else CardState(uuid)

    def put(self, address: str, state: CardState) -> None:
        if self.of(address, state.uuid) != state:
            self._cards[address] = state
            self._write()

    def keep_only(self, boot: str, uuids: Mapping[str, str]) -> None:
        """The node runs under this boot id, with these cards by address: what belongs to others is forgotten."""
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
