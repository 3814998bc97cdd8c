"""What a decision asks for: single writes, each safe to repeat, in an order that survives a crash after any of them."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.gpudevice import DeviceSpec, Hardware
from gpu_control_plane.api.gpunodestate import NodeStateStatus
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.inventory.events import EventRecord


class DropApproval(msgspec.Struct, frozen=True):
    """Take the approval off a card, provided that the object has not changed since it was read."""

    device: GPUDevice


class CarryOver(msgspec.Struct, frozen=True):
    """Give a card what a person had set at its old address, or in a GPUApproval before the card was there, and remove
    what was set for another card at its address."""

    name: str
    annotations: dict[str, str | None]
    labels: dict[str, str]


class WriteDevice(msgspec.Struct, frozen=True):
    """Create the GPUDevice of a card, or correct its labels."""

    name: str
    spec: DeviceSpec
    labels: dict[str, str]


class WriteHardware(msgspec.Struct, frozen=True):
    """Write `status.hardware` of a card."""

    name: str
    hardware: Hardware
    event: EventRecord | None = None


class DeleteDevice(msgspec.Struct, frozen=True):
    """Delete the GPUDevice of a card. The Event goes to the node's object, since the card's is deleted."""

    device: GPUDevice
    about: GPUNodeState
    event: EventRecord | None = None


class DeleteApproval(msgspec.Struct, frozen=True):
    """Delete a GPUApproval whose card is there. The Event is about the card, which had a GPUDevice already."""

    approval: GPUApproval
    overruled_by: GPUDevice | None = None
    event: EventRecord | None = None


class WriteApprovalMessage(msgspec.Struct, frozen=True):
    """Say in a GPUApproval why it is not followed; None takes that back."""

    name: str
    message: str | None


class CreateNodeState(msgspec.Struct, frozen=True):
    name: str


class WriteNodeStatus(msgspec.Struct, frozen=True):
    """Write inventory's part of a GPUNodeState's status."""

    name: str
    status: NodeStateStatus
    event: EventRecord | None = None


class DeleteNodeState(msgspec.Struct, frozen=True):
    state: GPUNodeState
    event: EventRecord | None = None


class DeleteFeature(msgspec.Struct, frozen=True):
    feature: NodeFeature


CardAction = DropApproval | CarryOver | WriteDevice | WriteHardware | DeleteDevice | DeleteApproval
NodeAction = CreateNodeState | WriteNodeStatus | DeleteNodeState | DeleteFeature | WriteApprovalMessage


class CardWork(msgspec.Struct, frozen=True):
    """The writes for one card, in order.

    With `observed` they are a chain: each write is accepted only on top of the one before it, the first on top of the
    observed version. So nothing that a person does to the object in between is overlooked.
    """

    actions: tuple[CardAction, ...]
    observed: GPUDevice | None = None
    then: "CardWork | None" = None
    """Work on another object that holds what this one needs: it must not begin before this one is done."""

    @property
    def steps(self) -> Iterator["CardWork"]:
        """This work and what follows it, in order."""
        step: CardWork | None = self
        while step is not None:
            yield step
            step = step.then


class Plan(msgspec.Struct, frozen=True):
    """Cards may be written at the same time; the node comes after all of them. An empty plan: nothing differs."""

    cards: tuple[CardWork, ...] = ()
    node: tuple[NodeAction, ...] = ()
    again_in: timedelta | None = None
    bus_disagrees: bool = False
    """Whether the bus disagrees in a way that is written only if it lasts: its workers look at different times."""

    @property
    def settled(self) -> bool:
        return not self.cards and not self.node


def in_order(works: Mapping[str, CardWork], origins: Mapping[str, GPUDevice]) -> tuple[CardWork, ...]:
    """The works, each behind the one that needs what it removes: the GPUDevice at a moved card's old address is
    written only after its annotations have been carried over. `works` and `origins` are by address."""
    onward = {origin.spec.pci_address: address for address, origin in origins.items()}
    chained: dict[str, CardWork] = {}
    first = [address for address in works if address not in onward]
    for start in first:
        line = [start]
        while (origin := origins.get(line[-1])) is not None and origin.spec.pci_address in works:
            line.append(origin.spec.pci_address)
        steps = [works[address] for address in line if works[address].actions]
        if steps:
            chained[start] = _linked(steps)
    return tuple(chained.values())


def _linked(steps: list[CardWork]) -> CardWork:
    *earlier, last = steps
    for step in reversed(earlier):
        last = CardWork(actions=step.actions, observed=step.observed, then=last)
    return last
