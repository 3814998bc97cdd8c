"""What is held now, and since when, from the cluster's own objects: for clusters without Prometheus. Pure.

Only pods that are there now can be seen, and of them only since when they run: what they used meanwhile, and what pods
held that have ended, nobody knows any more.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice, User
from gpu_control_plane.usage.hours import By, Hours
from gpu_control_plane.usage.queries import owner_name
from gpu_control_plane.views.loads import Load, load_of


class PodStart(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a pod runs, and what made it."""

    started: datetime | None
    owner: str = ""


class HeldNow(msgspec.Struct, frozen=True, kw_only=True):
    """What is held now."""

    hours: list[Hours]
    cards: int
    """Cards that pods hold."""
    idle_cards: int
    """Cards of them that are held idle now."""
    unknown: int
    """Pods that hold cards and of which it is not known since when."""


def held_now(
    cards: Iterable[GPUDevice],
    pods: Mapping[tuple[str, str], PodStart],
    by: By,
    *,
    now: datetime,
    since: timedelta,
) -> HeldNow:
    """Hours of the pods that hold cards now, within the last `since`."""
    hours: list[Hours] = []
    held = idle = 0
    unknown: set[tuple[str, str]] = set()
    for card in cards:
        users = card.status.used_by
        held += bool(users)
        idle += load_of(card) is Load.HELD_IDLE
        units = sum(user.units for user in users)
        for user in users:
            pod = pods.get((user.namespace, user.pod))
            started = pod.started if pod is not None else None
            if started is None:
                unknown.add((user.namespace, user.pod))
            spent = min(max(now - started, timedelta()), since) if started is not None else timedelta()
            held_for = spent.total_seconds() / 3600 * user.units / units
            hours.append(Hours(key=_key(by, card, user, pod), held=held_for))
    return HeldNow(hours=hours, cards=held, idle_cards=idle, unknown=len(unknown))


def _key(by: By, card: GPUDevice, user: User, pod: PodStart | None) -> str:
    match by:
        case By.POOL:
            return card.status.pool_ref.name if card.status.pool_ref is not None else ""
        case By.MODEL:
            return card.status.hardware.product if card.status.hardware is not None else ""
        case By.NODE:
            return card.spec.node_name
        case By.OWNER:
            return pod.owner if pod is not None and pod.owner else owner_name(user.namespace, "Pod", user.pod)
        case _:
            return user.namespace
