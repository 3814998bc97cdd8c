"""Whether a RayService needs the Gateway API: for an incremental upgrade, or to remove what one has left. Pure."""

from datetime import timedelta
from typing import Final

from gpu_control_plane.api.ray.service import RayService, ServiceUpgradeType
from gpu_control_plane.ray.service.snapshot import Snapshot

GATEWAY_CHECK: Final = timedelta(seconds=1)
"""When to look again while it is not known whether the Gateway API is installed."""


def upgrade_type(service: RayService) -> ServiceUpgradeType | None:
    strategy = service.spec.upgrade_strategy
    return strategy.type if strategy is not None else None


def is_incremental(service: RayService) -> bool:
    return upgrade_type(service) is ServiceUpgradeType.INCREMENTAL


def is_divided(service: RayService) -> bool:
    """Whether it has a Gateway, or may have one of before."""
    clusters = (service.status.active_service_status, service.status.pending_service_status)
    return is_incremental(service) or any(each is not None and each.target_capacity is not None for each in clusters)


def waits_for_gateway(s: Snapshot) -> bool:
    """Whether it is not known yet if the Gateway API is there."""
    return is_divided(s.service) and not s.gateway.known


def leaves_gateway(s: Snapshot) -> bool:
    """Whether the Gateway of a service that needs it no longer is still to go. Until then its status says that requests
    are divided, or it would be forgotten after a crash."""
    held = waits_for_gateway(s) or s.gateway.gateway is not None or s.gateway.route is not None
    return is_divided(s.service) and not is_incremental(s.service) and held
