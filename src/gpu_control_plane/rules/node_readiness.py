"""Whether the last word about a node still holds, by what the node reports and by the rest of its status.

Inventory, bootstrap and pools work side by side. After a restart, or when much happens at once, one of them may look at
a node before the others have: then the driver in its status may have gone since, the word that all cards are known may
be older than the loss of one, and the word that the node is ready older than either. What is concluded from such a
status is taken back a moment later, and cards may have been issued meanwhile.
"""

from collections.abc import Callable, Set
from typing import Final

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState, NodeStateStatus, StepResult, ValidationStep
from gpu_control_plane.api.identity import canonical_pci_address
from gpu_control_plane.api.names import NodeCondition
from gpu_control_plane.api.nodefeature import NodeFeature, read_cards, read_facts
from gpu_control_plane.kube.conditions import is_true

DRIVER: Final = "driver"
TOOLKIT: Final = "toolkit"
CUDA: Final = "cuda"
PROVING: Final = (DRIVER, TOOLKIT, CUDA)
"""The checks without which no node is ready."""


def is_taken_in(feature: NodeFeature | None, status: NodeStateStatus, out_of_service: Set[str]) -> bool:
    """Whether a status that calls the inventory complete can rest on this report. A report that makes no sense is
    nothing to wait for; `out_of_service` are the addresses of cards that nobody misses."""
    if feature is None:
        return True
    try:
        facts, cards = read_facts(feature), read_cards(feature)
        reported = {canonical_pci_address(card.pci.address): card.uuid for card in cards}
        places = {canonical_pci_address(place.address) for place in facts.bus or ()}
    except ValueError:
        return True
    if (facts.driver, facts.toolkit, facts.monitoring) != (status.driver, status.toolkit, status.monitoring):
        return False
    known = {card.pci_address: card.uuid for card in status.devices}
    if any(uuid is not None and known.get(address) != uuid for address, uuid in reported.items()):
        return False
    if facts.bus is None:
        return facts.bus_cards - len(reported) <= len(out_of_service - reported.keys())
    return places <= reported.keys() | out_of_service


def out_of_service(state: GPUNodeState, find_device: Callable[[str], GPUDevice | None]) -> frozenset[str]:
    """Addresses of the node's cards that a person has taken out of service."""
    known = (find_device(card.inventory_id) for card in state.status.devices)
    return frozenset(device.spec.pci_address for device in known if device is not None and device.ignored)


def speaks_against(status: NodeStateStatus) -> bool:
    """Whether no node with this status is ready, whatever its condition still says. Not all that bootstrap asks: only
    what others write beside the condition, and what takes effect at once."""
    return (
        not is_true(status.conditions, NodeCondition.INVENTORY_COMPLETE)
        or status.driver is None
        or status.toolkit is None
        or any(failed_step(status, step) for step in PROVING)
        or status.quiesced is not None
        or (status.plugin is not None and bool(status.plugin.conflicts))
    )


def failed_step(status: NodeStateStatus, name: str) -> ValidationStep | None:
    """A check of the agent that found something broken; one that was not made says nothing."""
    steps = status.validation.steps if status.validation is not None else ()
    return next((step for step in steps if step.name == name and step.result is StepResult.FAILED), None)
