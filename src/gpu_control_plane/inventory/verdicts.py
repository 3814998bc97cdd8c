"""Whether the inventory of a node is complete: the answers, and the sentences that say what to do about each."""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpu_control_plane.api.names import Label, Reason
from gpu_control_plane.api.nodefeature import NAMESPACE

_LONGEST: Final = 1024
_NAMED: Final = 4


class Verdict(msgspec.Struct, frozen=True):
    """Whether the inventory of a node is complete, and whether everything in it has vanished."""

    complete: bool
    reason: Reason
    message: str
    vanished: bool = False


class Missing(msgspec.Struct, frozen=True, order=True):
    """A card that the PCI bus shows and the driver does not."""

    address: str
    what: str = ""
    """Its model, as far as that is known."""
    device: str | None = None
    """Its GPUDevice, if it has one or is about to."""

    def __str__(self) -> str:
        return f"{self.address} ({self.what})" if self.what else self.address


NODE_GONE: Final = Verdict(
    complete=False,
    reason=Reason.NODE_GONE,
    message="The Node is gone. If it does not come back within the grace period, its cards are forgotten.",
    vanished=True,
)


def silent(node: str, bus: int | None = None) -> Verdict:
    """No report. `bus` is how many cards others than the agent see on the PCI bus."""
    seen = f" Its PCI bus shows {_cards(bus)}." if bus else ""
    pods = f"kubectl -n {NAMESPACE} get pods -o wide --field-selector spec.nodeName={node}"
    message = f"The node does not report.{seen} See whether the agent runs on it: `{pods}`."
    return Verdict(complete=False, reason=Reason.NODE_FEATURE_MISSING, message=message)


def no_cards(*, known: bool) -> Verdict:
    """The node reports an empty PCI bus. Where cards are known, that is doubted until it has lasted."""
    doubt = " If that lasts for the grace period, its cards are forgotten." if known else ""
    return Verdict(
        complete=False,
        reason=Reason.NO_DEVICES_DISCOVERED,
        message=f"The node reports no card.{doubt}",
        vanished=known,
    )


def bus_hidden(node: str) -> Verdict:
    """The agent knows of no card, and may not read the bus: there may be some all the same."""
    message = (
        f"The agent on {node} finds no driver and cannot read the PCI bus, so nobody can say which cards there are. "
        "Let its pod see /sys of the host, or install the driver."
    )
    return Verdict(complete=False, reason=Reason.BUS_HIDDEN, message=message)


def invalid(why: str) -> Verdict:
    message = f"The report of the node makes no sense, so nothing is changed: {why}"
    return Verdict(complete=False, reason=Reason.NODE_FEATURE_INVALID, message=message[:_LONGEST])


def all_known(count: int, out_of_service: Iterable[str] = ()) -> Verdict:
    """All is well; `out_of_service` are the addresses of ignored cards that the driver no longer sees."""
    message = "The card is known." if count == 1 else f"All {count} cards are known."
    if ignored := sorted(out_of_service):
        message += f" Out of service and not seen by the driver: {_some(ignored)}."
    return Verdict(complete=True, reason=Reason.INVENTORY_SYNCED, message=message)


def cards_missing(
    node: str, bus: int, reported: int, missing: Iterable[Missing], strays: Iterable[str] = ()
) -> Verdict:
    """The bus shows cards that the driver does not: which, and what to do. `strays` are shown by the driver alone."""
    cards = sorted(missing)
    where = f" Missing: {_some(str(card) for card in cards)}." if cards else ""
    address = cards[0].address if len(cards) == 1 else "10de:"
    option = "-s" if len(cards) == 1 else "-d"
    look = f"`lspci -nnk {option} {address}` and `dmesg | grep -i nvrm` on {node} say what the driver makes of "
    advice = f" {look}{'it' if len(cards) == 1 else 'them'}; a restart of the node often helps."
    known = [card.device for card in cards if card.device is not None]
    if known:
        advice += f" To go on without it: `kubectl label gpudevice {known[0]} {Label.IGNORE}=true`."
    if beside := list(strays):
        where += f" Not on the bus, but shown by the driver: {_some(beside)}."
    message = f"The PCI bus shows {_cards(bus)}, the node reports {reported}.{where}{advice}"
    return Verdict(complete=False, reason=Reason.CARDS_MISSING, message=message[:_LONGEST])


def strays(node: str, addresses: Iterable[str]) -> Verdict:
    """The driver shows cards where the bus shows none."""
    message = (
        f"The driver shows cards that are not on the PCI bus: {_some(addresses)}. They were pulled, or have fallen off "
        f"it: `lspci -d 10de:` and `dmesg | grep -i nvrm` on {node} say which. A restart of the node settles it."
    )
    return Verdict(complete=False, reason=Reason.BUS_DISAGREES, message=message[:_LONGEST])


def bus_disagrees(node: str, differences: Iterable[str]) -> Verdict:
    """Node Feature Discovery and the agent do not see the same bus."""
    agent = (
        f"kubectl -n {NAMESPACE} delete pod -l app.kubernetes.io/component=agent --field-selector spec.nodeName={node}"
    )
    message = (
        f"Node Feature Discovery and the agent disagree: {'; '.join(differences)}. `lspci -d 10de:` on {node} says who "
        f"is right. If it is the agent, restart the worker of Node Feature Discovery there; else `{agent}`."
    )
    return Verdict(complete=False, reason=Reason.BUS_DISAGREES, message=message[:_LONGEST])


def elsewhere(node: str, cards: Iterable[str], other: str) -> Verdict:
    """Another node reports the same cards, and its word is better."""
    message = (
        f"The node {other} reports the same cards: {_some(cards)}. If this node has got that name, "
        f"`kubectl delete node {node}` removes the old one; else look at the agents of both."
    )
    return Verdict(complete=False, reason=Reason.CARDS_ELSEWHERE, message=message[:_LONGEST])


def _cards(count: int | None) -> str:
    return "1 card" if count == 1 else f"{count} cards"


def _some(names: Iterable[str]) -> str:
    """The first few of them: messages have a limit, and people too."""
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
