"""Follows cards on their way to where a person sent them. Whoever follows may stop: the controller goes on."""

import asyncio
from collections.abc import Callable, Mapping

from gpu_control_plane.actions.card_progress import CardProgress
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.views.fleet import Fleet, Missing
from gpu_control_plane.views.following import follow_fleet
from gpu_control_plane.views.reading import Part


async def follow(
    client: Client,
    cards: Mapping[str, str],
    progress: Callable[[GPUDevice], CardProgress],
    told: Callable[[CardProgress], None],
) -> Missing | None:
    """Tell where each card, given with its node, stands whenever that changes, until all are done or gone. Returns what
    may not be watched, if that is why it ends."""
    last: dict[str, CardProgress] = {}
    finished = asyncio.Event()
    missing: Missing | None = None

    def show(fleet: Fleet) -> None:
        nonlocal missing
        missing = next(iter(fleet.missing), None)
        found = {name: progress(fleet.cards[name]) for name in cards if name in fleet.cards}
        for name, now in found.items():
            if last.get(name) != now:
                last[name] = now
                told(now)
        if missing is not None or all(now.done for now in found.values()):
            finished.set()

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow_fleet(client, show, {Part.CARDS}, cards=_selection(cards)))
        await finished.wait()
        following.cancel()
    return missing


def _selection(cards: Mapping[str, str]) -> Selection:
    """One card, or those of one node; of several nodes all cards."""
    nodes = set(cards.values())
    if len(cards) == 1:
        return Selection(fields=f"metadata.name={next(iter(cards))}")
    return Selection(fields=f"spec.nodeName={nodes.pop()}") if len(nodes) == 1 else EVERYTHING
