"""The hardware of a simulated node, as a small document in an annotation of the Node, and how it changes.

Because the hardware is data in the API server, the process that plays it may die at any moment: what was injected
stays true, and every identity is derived from the document.
"""

import functools
import uuid
from typing import Final

import msgspec

from gpu_control_plane.agent.simulated.models import MOST_CARDS, PROFILES, pci_address
from gpu_control_plane.agent.simulated.state import CardState
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.kube.errors import KubeError

HARDWARE: Final = "simulation.gpu.deckhouse.io/hardware"
"""On a Node: the cards it pretends to have, and what was done to them."""
SIMULATED: Final = "kwok.x-k8s.io/node"
"""On a Node: KWOK keeps it alive instead of a kubelet."""
SIMULATED_VALUE: Final = "fake"

_HIGHEST_XID: Final = 65535
_SLOWEST: Final = 3600.0


class SimulationError(KubeError):
    """What was asked of the simulation cannot be done; the sentence says why and what to do instead."""


class CardHistory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was done to the card at one address."""

    xids: tuple[int, ...] = ()
    """Error reports of the driver, oldest first."""
    ecc: int = 0
    """Uncorrected memory errors."""
    remap_pending: bool = False
    """A bad row of its memory is replaced at the next reset."""
    remap_failed: bool = False
    """A bad row of its memory has no spare left."""
    overheated: bool = False
    """It slows itself down because it is too hot."""
    lost: bool = False
    """It has fallen off the bus, but is still in the machine."""
    pulled: bool = False
    """It was taken out of the machine."""
    swapped: int = 0
    """How often another card was put in its place."""
    resets: int = 0
    """How often the card was reset."""


class Machine(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The document: what a simulated node is made of."""

    profile: str
    cards: int
    slow_seconds: float = 0.0
    """How long the node takes to react to anything."""
    reinstalled: int = 0
    """How often it was installed anew; each time it has another boot id."""
    history: dict[str, CardHistory] = {}
    """By PCI address; a card that nothing happened to is not in it."""
    state: dict[str, CardState] = {}
    """By PCI address: what the cards of the simulated fleet remember, such as their MIG instances."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every place for a card, also those whose card was pulled."""
        return tuple(pci_address(index) for index in range(self.cards))

    def of(self, address: str) -> CardHistory:
        return self.history.get(address, CardHistory())


def new_machine(profile: str, cards: int) -> Machine:
    """A machine that nothing happened to yet."""
    if profile not in PROFILES:
        raise SimulationError(f"There is no profile {profile}. Choose one of {', '.join(PROFILES)}.")
    if not 1 <= cards <= MOST_CARDS:
        raise SimulationError(f"A simulated node has 1 to {MOST_CARDS} cards, not {cards}.")
    return Machine(profile=profile, cards=cards)


def read_machine(node: str, annotations: dict[str, str]) -> Machine | None:
    """The hardware of a node; None when it has none to simulate."""
    text = annotations.get(HARDWARE)
    if text is None:
        return None
    try:
        machine = msgspec.json.decode(text, type=Machine)
        new_machine(machine.profile, machine.cards)
        _check_history(machine)
    except (msgspec.DecodeError, SimulationError) as error:
        raise SimulationError(
            f"The annotation {HARDWARE} of node {node} cannot be understood ({error})."
            " `kubectl gpu simulate nodes`, with the prefix and count that name the node, gives it new cards;"
            f" `kubectl annotate node {node} {HARDWARE}-` takes them out."
        ) from error
    return machine


def _check_history(machine: Machine) -> None:
    """What a person wrote by hand must be something that can happen to a card."""
    if not 0 <= machine.slow_seconds <= _SLOWEST:
        raise SimulationError(f"slowSeconds runs from 0 to {_SLOWEST:g}, not {machine.slow_seconds:g}.")
    for address, card in machine.history.items():
        if card.ecc < 0 or card.swapped < 0 or not all(1 <= code <= _HIGHEST_XID for code in card.xids):
            raise SimulationError(f"The history of {address} has a number in it that no card would report.")


def write_machine(machine: Machine) -> str:
    return msgspec.json.encode(machine).decode()


def card_ids(node: str, machine: Machine) -> dict[str, str]:
    """The address of every card of the node by the name of its GPUDevice."""
    return {inventory_id(node, address): address for address in machine.addresses}


def boot_id(node: str, machine: Machine) -> str:
    """The identity of the system that runs: another one after each installation."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}/boot/{machine.reinstalled}"))


@functools.lru_cache(65536)
def card_uuid(node: str, address: str, swapped: int) -> str:
    """The card's own identity: another one after each swap."""
    place = f"{node}/{address}" if swapped == 0 else f"{node}/{address}/{swapped}"
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, place)}"


def report_xid(machine: Machine, address: str, code: int) -> Machine:
    """The driver reports an error of this card."""
    if not 1 <= code <= _HIGHEST_XID:
        raise SimulationError(f"{code} is no XID: they run from 1 to {_HIGHEST_XID}, such as 79.")
    card = machine.of(address)
    return _with(machine, address, msgspec.structs.replace(card, xids=(*card.xids, code)[-8:]))


def break_memory(machine: Machine, address: str, errors: int = 1) -> Machine:
    """Uncorrected errors appear in the card's memory."""
    card = machine.of(address)
    return _with(machine, address, msgspec.structs.replace(card, ecc=card.ecc + errors))


def wear_out(machine: Machine, address: str, *, failed: bool) -> Machine:
    """A row of the card's memory goes bad: a spare one replaces it at the next reset, or there is none left."""
    change = {"remap_failed": True} if failed else {"remap_pending": True}
    return _with(machine, address, msgspec.structs.replace(machine.of(address), **change))


def overheat(machine: Machine, address: str) -> Machine:
    """The card gets too hot."""
    return _with(machine, address, msgspec.structs.replace(machine.of(address), overheated=True))


def lose(machine: Machine, address: str) -> Machine:
    """The card falls off the bus; the driver reports that as XID 79."""
    return _with(machine, address, msgspec.structs.replace(machine.of(address), lost=True))


def pull(machine: Machine, address: str) -> Machine:
    """The card is removed from the machine."""
    return _with(machine, address, msgspec.structs.replace(machine.of(address), pulled=True))


def heal(machine: Machine, address: str) -> Machine:
    """The card is repaired and in its place: the same card as before, without a fault."""
    card = machine.of(address)
    return _with(machine, address, CardHistory(swapped=card.swapped, resets=card.resets))


def reset(machine: Machine, address: str) -> Machine:
    """The card is reset: past errors are forgotten. What is still wrong with it stays wrong."""
    card = machine.of(address)
    after = msgspec.structs.replace(card, xids=(), ecc=0, remap_pending=False)
    if after == card:
        return machine
    return _with(machine, address, msgspec.structs.replace(after, resets=card.resets + 1))


def swap(machine: Machine, address: str) -> Machine:
    """Another card of the same model, in working order, is put in this card's place."""
    return _with(machine, address, CardHistory(swapped=machine.of(address).swapped + 1))


def slow_down(machine: Machine, seconds: float) -> Machine:
    """The node takes this long to react to anything; 0 makes it quick again."""
    if not 0 <= seconds <= _SLOWEST:  # nan is no number of seconds either
        raise SimulationError(f"A node reacts within 0 to {_SLOWEST:g} seconds, not {seconds:g}.")
    return msgspec.structs.replace(machine, slow_seconds=seconds)


def reinstall(machine: Machine) -> Machine:
    """The node's system is installed anew on the same hardware."""
    return msgspec.structs.replace(machine, reinstalled=machine.reinstalled + 1, state={})


def _with(machine: Machine, address: str, card: CardHistory) -> Machine:
    history = {**machine.history, address: card}
    kept = {place: done for place, done in sorted(history.items()) if done != CardHistory()}
    return msgspec.structs.replace(machine, history=kept)
