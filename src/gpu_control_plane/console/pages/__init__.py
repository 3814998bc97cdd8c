"""The pages. Each module has the functions of one page; the table below is all that the server knows of them."""

from typing import Final

from gpu_control_plane.console.page import Page
from gpu_control_plane.console.pages import (
    approvals,
    card_actions,
    cards,
    events,
    nodes,
    overview,
    pools,
    ray,
    settings,
    stack,
    usage,
    workloads,
)

PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *approvals.PAGES,
    *card_actions.PAGES,
    *pools.PAGES,
    *nodes.PAGES,
    *cards.PAGES,
    *workloads.PAGES,
    *usage.PAGES,
    *ray.PAGES,
    *stack.PAGES,
    *events.PAGES,
    *settings.PAGES,
)
