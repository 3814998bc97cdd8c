"""What a decision asks for: single writes, each safe to repeat, in an order that survives a crash after any of them."""

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from gpu_control_plane.api import GPUDevice, GPUNodeState
from gpu_control_plane.api.gpudevice import DeviceSpec, Hardware
from gpu_control_plane.api.gpunodestate import NodeStateStatus
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.inventory.events import Tell


class DropApproval(msgspec.Struct, frozen=True):
    """Take the approval off a card, provided that nobody has changed the object since."""

    device: GPUDevice


class CarryOver(msgspec.Struct, frozen=True):
    """Give a card what a person had said of it at its old place, and take away what was said of another card there."""

    name: str
    annotations: dict[str, str | None]
    labels: dict[str, str]


class WriteDevice(msgspec.Struct, frozen=True):
    """Make the object of a card be there, with its place and labels."""

    name: str
    spec: DeviceSpec
    labels: dict[str, str]


class WriteHardware(msgspec.Struct, frozen=True):
    """Say what the card is."""

    name: str
    hardware: Hardware
    tell: Tell | None = None


class DeleteDevice(msgspec.Struct, frozen=True):
    """Forget a card. People are told on the node's object, since the card's is going."""

    device: GPUDevice
    about: GPUNodeState
    tell: Tell | None = None


class CreateNodeState(msgspec.Struct, frozen=True):
    """Make the object of a node be there."""

    name: str


class WriteNodeStatus(msgspec.Struct, frozen=True):
    """Say what the node has."""

    name: str
    status: NodeStateStatus
    tell: Tell | None = None


class DeleteNodeState(msgspec.Struct, frozen=True):
    state: GPUNodeState
    tell: Tell | None = None


class DeleteFeature(msgspec.Struct, frozen=True):
    feature: NodeFeature


CardAction = DropApproval | CarryOver | WriteDevice | WriteHardware | DeleteDevice
NodeAction = CreateNodeState | WriteNodeStatus | DeleteNodeState | DeleteFeature


class CardWork(msgspec.Struct, frozen=True):
    """The writes for one card, in order.

    With `observed` they are a chain: each goes through only on top of the one before, the first on top of what was
    observed. So nothing that a person does to the object in between is overlooked.
    """

    actions: tuple[CardAction, ...]
    observed: GPUDevice | None = None
    then: "CardWork | None" = None
    """Work on another object, which holds what this one needs: it must not begin before this one is done."""

    @property
    def steps(self) -> Iterator["CardWork"]:
        """This work and what follows it, in order."""
        step: CardWork | None = self
        while step is not None:
            yield step
            step = step.then


class Plan(msgspec.Struct, frozen=True):
    """Cards may be worked on at the same time; the node comes after all of them. Nothing in it: all is well."""

    cards: tuple[CardWork, ...] = ()
    node: tuple[NodeAction, ...] = ()
    again_in: timedelta | None = None
    doubt: bool = False
    """Something is wrong that may be right in a moment: it is told if it lasts."""

    @property
    def settled(self) -> bool:
        return not self.cards and not self.node
