"""The configuration that Ray Serve gets, and the applications that it reports. Pure.

A configuration is put when it differs from the last accepted one, which is kept in an annotation of the RayCluster, or
when Ray Serve reports no application: it has lost them with its head. A restarted operator therefore puts nothing.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gpu_control_plane.api.ray.service import ApplicationStatus, DeploymentStatus, ServedCluster
from gpu_control_plane.ray.dashboard.models import ServeDetails
from gpu_control_plane.rules.ray.yaml_map import BadYAMLMap, read_map


class BadConfig(ValueError):
    """The configuration is not a YAML mapping."""


def parse(text: str) -> dict[str, Any]:
    """The configuration; `BadConfig` says what is wrong with it."""
    try:
        return read_map(text)
    except BadYAMLMap as error:
        raise BadConfig(str(error)) from None


def with_capacity(config: Mapping[str, Any], capacity: int | None) -> dict[str, Any]:
    """The configuration, with the percentage of replicas that an incremental upgrade asks for."""
    return dict(config) if capacity is None else {**config, "target_capacity": capacity}


def config_hash(config: Mapping[str, Any]) -> str:
    """A short hash of a configuration, whatever the order of its keys."""
    encoded = msgspec.json.encode(config, order="deterministic", enc_hook=str)
    return hashlib.sha256(encoded).hexdigest()[:16]


class ServeConfigUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray Serve of one cluster is to have: a configuration, and the percentage of its replicas."""

    config_id: str
    """Hash of the configuration, and the capacity."""
    config: Mapping[str, Any] | None = None
    """None: it keeps its configuration, and only the capacity changes."""
    capacity: int | None = None

    def body(self, details: ServeDetails | None) -> dict[str, Any] | None:
        """The whole configuration to put; None if there is none, or if the one that the cluster keeps is not known."""
        config = self.config if self.config is not None else _deployed(details)
        return with_capacity(config, self.capacity) if config else None


def serve_config_update(
    config: Mapping[str, Any], annotation: str, capacity: int | None, *, follows: bool
) -> ServeConfigUpdate:
    """What the cluster with this annotation is to have. `follows`: whether it gets the configuration of the service. A
    cluster that is being replaced keeps its own, since the new one may be written for the new cluster; if both are the
    same, the service's can be put again."""
    wanted, held = config_hash(config), digest_of(annotation)
    known = follows or held == wanted
    config_id = f"{wanted if known else held}:{'' if capacity is None else capacity}"
    return ServeConfigUpdate(config_id=config_id, config=config if known else None, capacity=capacity)


def accepted_annotation(config_id: str, at: datetime) -> str:
    """The value of the annotation once Ray Serve has accepted a configuration."""
    return f"{config_id}@{at.strftime('%Y%m%dT%H%M%SZ')}"


def is_accepted(update: ServeConfigUpdate, annotation: str) -> bool:
    """Whether this is the configuration that Ray Serve has accepted last."""
    return annotation.partition("@")[0] == update.config_id


def digest_of(annotation: str) -> str:
    return annotation.partition("@")[0].partition(":")[0]


def has_lost_all(update: ServeConfigUpdate, details: ServeDetails | None) -> bool:
    """Whether Ray Serve has no application although its configuration has some: its head has been recreated."""
    return details is not None and not details.applications and bool((update.config or {}).get("applications"))


def _deployed(details: ServeDetails | None) -> dict[str, Any]:
    """The configuration that Ray Serve reports."""
    if details is None:
        return {}
    found = [each.deployed_app_config for each in details.applications.values() if each.deployed_app_config]
    if not found or len(found) != len(details.applications):
        return {}
    beside = {"proxy_location": details.proxy_location, "http_options": details.http_options}  # JSON as it came
    return {**{key: value for key, value in beside.items() if value}, "applications": found}


def statuses(details: ServeDetails | None, held: ServedCluster) -> dict[str, ApplicationStatus]:
    """The applications for a status. While Ray Serve does not answer, the last known ones stay."""
    if details is None:
        return held.application_statuses
    return {
        name: ApplicationStatus(
            status=application.status,
            message=application.message or "",
            serve_deployment_statuses={
                each: DeploymentStatus(status=deployment.status, message=deployment.message or "")
                for each, deployment in application.deployments.items()
            },
        )
        for name, application in details.applications.items()
    }
