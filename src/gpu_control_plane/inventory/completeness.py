"""Whether the inventory of a node is complete: each answer with its reason and the sentence that says what to do."""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane.api.names import Label, Reason
from gpu_control_plane.kube.sentences import counted

_MAX_MESSAGE: Final = 1024
_MAX_NAMED: Final = 4


class Completeness(msgspec.Struct, frozen=True):
    """The condition InventoryComplete of a node, and whether the node or all of its cards have vanished."""

    complete: bool
    reason: Reason
    message: str
    vanished: bool = False


class MissingCard(msgspec.Struct, frozen=True, order=True):
    """A card that the PCI bus shows and the driver does not."""

    address: str
    model: str = ""
    """As far as it is known."""
    device: str | None = None
    """Its GPUDevice, if it has one or is about to get one."""

    def __str__(self) -> str:
        return f"{self.address} ({self.model})" if self.model else self.address


NODE_GONE: Final = Completeness(
    complete=False,
    reason=Reason.NODE_GONE,
    message="The Node is gone. If it does not come back within the grace period, its cards are forgotten.",
    vanished=True,
)


def no_report(node: str, namespace: str, bus: int | None = None) -> Completeness:
    """The agent, which runs in `namespace`, has not reported. `bus` is how many cards other programs see on the
    PCI bus."""
    on_bus = f" Its PCI bus shows {_cards(bus)}." if bus else ""
    pods = f"kubectl -n {namespace} get pods -o wide --field-selector spec.nodeName={node}"
    message = f"The node does not report.{on_bus} See whether the agent runs on it: `{pods}`."
    return Completeness(complete=False, reason=Reason.NODE_FEATURE_MISSING, message=message)


def invalid_report(why: str) -> Completeness:
    message = f"The report of the node makes no sense, so nothing is changed: {why}"
    return Completeness(complete=False, reason=Reason.NODE_FEATURE_INVALID, message=message[:_MAX_MESSAGE])


def no_cards(*, known: bool) -> Completeness:
    """The node reports an empty PCI bus. Where cards are `known`, they are kept for the grace period."""
    kept = " If that lasts for the grace period, its cards are forgotten." if known else ""
    return Completeness(
        complete=False,
        reason=Reason.NO_DEVICES_DISCOVERED,
        message=f"The node reports no card.{kept}",
        vanished=known,
    )


def bus_hidden(node: str) -> Completeness:
    """The agent finds no driver and may not read the bus, so there may be cards that it does not know of."""
    message = (
        f"The agent on {node} finds no driver and cannot read the PCI bus, so it cannot say which cards there are. "
        "Let its pod see /sys of the host, or install the driver."
    )
    return Completeness(complete=False, reason=Reason.BUS_HIDDEN, message=message)


def complete(count: int, ignored: Iterable[str] = ()) -> Completeness:
    """Every card is known. `ignored` are the addresses of ignored cards that the driver does not show."""
    message = "The card is known." if count == 1 else f"All {count} cards are known."
    if addresses := sorted(ignored):
        message += f" Out of service and not seen by the driver: {_some(addresses)}."
    return Completeness(complete=True, reason=Reason.INVENTORY_SYNCED, message=message)


def cards_missing(
    node: str, bus: int, reported: int, missing: Iterable[MissingCard], off_bus: Iterable[str] = ()
) -> Completeness:
    """The bus shows cards that the driver does not. `off_bus` are the addresses that the driver alone shows."""
    cards = sorted(missing)
    where = f" Missing: {_some(str(card) for card in cards)}." if cards else ""
    address = cards[0].address if len(cards) == 1 else "10de:"
    option = "-s" if len(cards) == 1 else "-d"
    look = f"`lspci -nnk {option} {address}` and `dmesg | grep -i nvrm` on {node} say what the driver makes of "
    advice = f" {look}{'it' if len(cards) == 1 else 'them'}; a restart of the node often helps."
    devices = [card.device for card in cards if card.device is not None]
    if devices:
        advice += f" To go on without it: `kubectl label gpudevice {devices[0]} {Label.IGNORE}=true`."
    if beside := list(off_bus):
        where += f" Not on the bus, but shown by the driver: {_some(beside)}."
    message = f"The PCI bus shows {_cards(bus)}, the node reports {reported}.{where}{advice}"
    return Completeness(complete=False, reason=Reason.CARDS_MISSING, message=message[:_MAX_MESSAGE])


def cards_off_bus(node: str, addresses: Iterable[str]) -> Completeness:
    """The driver shows cards where the bus shows none."""
    message = (
        f"The driver shows cards that are not on the PCI bus: {_some(addresses)}. They were pulled, or have fallen off "
        f"it: `lspci -d 10de:` and `dmesg | grep -i nvrm` on {node} say which. A restart of the node settles it."
    )
    return Completeness(complete=False, reason=Reason.BUS_DISAGREES, message=message[:_MAX_MESSAGE])


def bus_disagrees(node: str, namespace: str, differences: Iterable[str]) -> Completeness:
    """Node Feature Discovery and the agent, which runs in `namespace`, count different cards on the bus."""
    agent = (
        f"kubectl -n {namespace} delete pod -l app.kubernetes.io/component=agent --field-selector spec.nodeName={node}"
    )
    message = (
        f"Node Feature Discovery and the agent disagree: {'; '.join(differences)}. `lspci -d 10de:` on {node} says who "
        f"is right. If it is the agent, restart the worker of Node Feature Discovery there; else `{agent}`."
    )
    return Completeness(complete=False, reason=Reason.BUS_DISAGREES, message=message[:_MAX_MESSAGE])


def duplicate_uuids(node: str, cards: Iterable[str], other: str) -> Completeness:
    """Another node reports cards with the same UUIDs, and that node is believed."""
    message = (
        f"The node {other} reports the same cards: {_some(cards)}. If this node has got that name, "
        f"`kubectl delete node {node}` removes the old one; else look at the agents of both."
    )
    return Completeness(complete=False, reason=Reason.CARDS_ELSEWHERE, message=message[:_MAX_MESSAGE])


def _cards(count: int | None) -> str:
    return counted(count or 0, "card")


def _some(names: Iterable[str]) -> str:
    """The first few of them: a condition's message has a limit."""
    listed = list(names)
    more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
    return ", ".join(listed[:_MAX_NAMED]) + more
