"""Which cards are free to be burned in, and which nobody may have before they are. Pure."""

from collections.abc import Iterable, Mapping, Set
from typing import Final

from gpu_control_plane.agent.burnin.decide import Standing
from gpu_control_plane.agent.node.moment import Moment
from gpu_control_plane.agent.node.picture import Seen
from gpu_control_plane.agent.units import CardID
from gpu_control_plane.agent.validator.steps import Step
from gpu_control_plane.api.gpunodestate import Assignment, StepResult, Validation
from gpu_control_plane.api.names import Reason

_NEEDED: Final = frozenset({Step.DRIVER, Step.CUDA})


def obstacle(moment: Moment, seen: Seen, *, offered: Set[CardID], healthy: bool, checked: bool) -> str | None:
    """Why the card cannot be tested at this moment, in a sentence; None when nobody needs it and everything works."""
    in_hand = offered | {unit.card for unit in moment.held}
    reasons = (
        (not healthy, "The card has a fault."),
        (seen.id not in moment.cards, "The card is taken out of service, or not known to the cluster yet."),
        (not checked, "The checks of the node's driver come first."),
        (any(order.inventory_id == seen.id for order in moment.orders), "The card is in a pool."),
        (seen.id in in_hand, "The card is offered to pods, or in use by one."),
        (seen.is_cut, "The card is in MIG mode, in which it cannot be tested whole: switch that off."),
    )
    return next((sentence for holds, sentence in reasons if holds), None)


def passed(checked: Validation | None) -> bool:
    """A test on a driver that does not work would be held against the card."""
    return checked is not None and not any(
        step.name in _NEEDED and step.result is StepResult.FAILED for step in checked.steps
    )


def withheld(standings: Mapping[CardID, Standing | None], orders: Iterable[Assignment]) -> frozenset[CardID]:
    """Cards that must not be offered: under test, or in no pool and not tested."""
    ordered = {order.inventory_id for order in orders}
    return frozenset(
        card
        for card, standing in standings.items()
        if standing is not None
        and (standing.reason == Reason.BURNING_IN or (not standing.trusted and card not in ordered))
    )
