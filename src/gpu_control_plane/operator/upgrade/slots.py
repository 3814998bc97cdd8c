"""How many nodes may begin an upgrade now. Pure."""

import math


def slots(*, total: int, required: int, in_progress: int, unavailable: int, parallel: int, max_unavailable: int) -> int:
    """Nodes in service that may be taken out of it now.

    `parallel` bounds the nodes under way, where 0 means no bound. `max_unavailable` bounds the nodes out of service,
    for whatever reason; a bound as large as the whole is none.
    """
    if unavailable >= max_unavailable:
        return 0
    free = min(free_turns(required=required, in_progress=in_progress, parallel=parallel), max_unavailable)
    return min(free, max_unavailable - unavailable) if max_unavailable < total else free


def free_turns(*, required: int, in_progress: int, parallel: int) -> int:
    """Nodes that may begin as far as their number at a time goes; all that is asked of a node out of service."""
    return min(required, max(parallel - in_progress, 0)) if parallel else required


def share(of: int, wanted: int | str) -> int:
    """`25%` of so many nodes, rounded up, or simply a number."""
    text = str(wanted).strip()
    if text.endswith("%"):
        return math.ceil(of * int(text[:-1]) / 100)
    return int(text)
