"""Gathers what one step decides on: the books of the kubelet, the pods of the node, and what is being handed out."""

from collections.abc import Set

from gpu_control_plane.agent.node.books import Place, read_books, starting, unsettled
from gpu_control_plane.agent.node.moment import Moment, Views
from gpu_control_plane.agent.node.parts import Parts
from gpu_control_plane.agent.node.picture import Picture
from gpu_control_plane.agent.node.views import LocalNode
from gpu_control_plane.agent.node.wishes import known
from gpu_control_plane.agent.units import Unit


async def gather(node: LocalNode, views: Views, parts: Parts, picture: Picture, offered: Set[Unit]) -> Moment:
    """This moment; raises KubeletUnavailable."""
    entries = await parts.books.list()
    allocatable = await parts.books.allocatable()
    pods = list(views.pods)
    books = read_books(entries, _places(views, picture))
    held = dict(books.held)
    for unit in parts.desk.pending(books.held):
        held.setdefault(unit, "a pod that is starting")
    initializing = starting(pods)
    for unit in offered:
        if unit.resource in initializing:
            held.setdefault(unit, "perhaps an init container")
    return Moment(
        node=node,
        state=views.states.get(node.name),
        picture=picture,
        cards=known(picture, views.cards),
        books=books,
        held=held,
        allocatable=allocatable,
        busy=unsettled(pods, books, {unit.resource for unit in offered}),
    )


def _places(views: Views, picture: Picture) -> dict[str, Place]:
    """Every card that was ever heard of by its UUID: a pod may hold one that has left the machine."""
    places = {
        card.status.hardware.uuid: Place(card.name, None)
        for card in views.cards
        if card.status.hardware and card.status.hardware.uuid
    }
    return places | {uuid: Place(seen.id, seen.hardware) for uuid, seen in picture.by_uuid().items()}
