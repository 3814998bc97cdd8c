"""Whether a Service that a user gives inside of a spec has the shape of one: the API server has not looked at it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpu_control_plane.rules.ray.problem import Faults


class _Metadata(msgspec.Struct, frozen=True):
    name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Port(msgspec.Struct, frozen=True):
    name: str | None = None


class _Spec(msgspec.Struct, frozen=True):
    type: str | None = None
    selector: dict[str, str] | None = None
    ports: list[_Port] | None = None


class _Service(msgspec.Struct, frozen=True):
    metadata: _Metadata | None = None
    spec: _Spec | None = None


def given_service_faults(given: Mapping[str, Any] | None, path: str) -> Faults:
    """What of it could not be read; whether it can be, the API server says."""
    try:
        msgspec.convert(given or {}, _Service)
    except msgspec.ValidationError as error:
        yield path, f"this is not what a Service looks like: {error}"
