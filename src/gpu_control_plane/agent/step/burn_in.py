"""How far the burn-in of each card is, which cards are due for a test, and which are not advertised before. Pure."""

from collections.abc import Iterable, Mapping, Set

from gpu_control_plane.agent.burnin.status import (
    BurnInFacts,
    BurnInStatus,
    burn_in_status,
    in_pool,
    reported_status,
    status_running,
    status_waiting,
)
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot, ObservedCard
from gpu_control_plane.agent.step.snapshot import NodeSnapshot
from gpu_control_plane.agent.units import CardID
from gpu_control_plane.agent.views import DeviceView
from gpu_control_plane.api.gpunodestate import Assignment
from gpu_control_plane.api.names import Reason


def known_results(
    known: Mapping[str, BurnInStatus],
    ended: Mapping[str, BurnInStatus],
    devices: Iterable[DeviceView],
    repaired: Set[CardID],
) -> dict[str, BurnInStatus]:
    """What is known of each card by its UUID: by this agent, else by the card's status. Of a card that a person says is
    repaired, a failed test is made again."""
    results: dict[str, BurnInStatus] = {}
    again: set[str] = set()
    for device in devices:
        stated = reported_status(device)
        if stated is not None:
            results[stated.record.uuid] = stated
            if device.name in repaired:
                again.add(stated.record.uuid)
    results |= {**known, **ended}
    for uuid in again:
        if results[uuid].status is False:
            results[uuid] = status_waiting(uuid, "It is made again.")
    return results


def burn_ins(
    snapshot: NodeSnapshot,
    hardware: HardwareSnapshot,
    results: Mapping[str, BurnInStatus],
    obstacles: Mapping[CardID, str],
) -> dict[CardID, BurnInStatus | None]:
    """What is to be said of each card; `obstacles` are the reasons why a card cannot be tested at the moment."""
    tests = snapshot.burn_in
    pools = {order.inventory_id: order.pool for order in snapshot.orders}
    found: dict[CardID, BurnInStatus | None] = {}
    for device in snapshot.devices:
        card = hardware.observed.get(device.name)
        if card is None:
            continue
        uuid = card.hardware.uuid
        facts = BurnInFacts(
            uuid=uuid,
            known=results.get(uuid) if uuid else reported_status(device),
            in_pool=in_pool(device, uuid, pools.get(device.name)),
            running=tests.running.get(uuid or ""),
            obstacle=tests.obstacles.get(uuid or "") or obstacles.get(device.name),
        )
        status = burn_in_status(facts, enabled=tests.enabled)
        if status is not None and uuid is not None and status.due and tests.ready:
            begins = f"{snapshot.now:%Y-%m-%dT%H:%M:%SZ}"
            status = status_running(uuid, f"The card is tested for {tests.seconds:g} s, from {begins} on.")
        found[device.name] = status
    return found


def to_start(found: Mapping[CardID, BurnInStatus | None], running: Mapping[str, str]) -> dict[CardID, str]:
    """The cards whose test has to begin, and what is said of each."""
    return {
        card: status.message
        for card, status in found.items()
        if status is not None and status.reason == Reason.BURNING_IN and status.record.uuid not in running
    }


def test_obstacle(
    card: ObservedCard,
    orders: Iterable[Assignment],
    *,
    usable: Set[CardID],
    needed: Set[CardID],
    healthy: bool,
    checked: bool,
) -> str | None:
    """Why the card cannot be tested now, in a sentence; `needed` are the cards that are advertised or held."""
    reasons = (
        (not healthy, "The card has a fault."),
        (card.id not in usable, "The card is taken out of service, or not known to the cluster yet."),
        (not checked, "The checks of the node's driver come first."),
        (any(order.inventory_id == card.id for order in orders), "The card is in a pool."),
        (card.id in needed, "The card is offered to pods, or in use by one."),
        (card.mig_enabled, "The card is in MIG mode, in which it cannot be tested whole: switch that off."),
    )
    return next((sentence for holds, sentence in reasons if holds), None)


def withheld_cards(found: Mapping[CardID, BurnInStatus | None], orders: Iterable[Assignment]) -> frozenset[CardID]:
    """Cards that must not be advertised: under test, or in no pool and not tested."""
    ordered = {order.inventory_id for order in orders}
    return frozenset(
        card
        for card, status in found.items()
        if status is not None and (status.reason == Reason.BURNING_IN or (not status.trusted and card not in ordered))
    )
