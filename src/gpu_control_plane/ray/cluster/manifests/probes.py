"""Probes of the Ray container, where the user has none."""

from collections.abc import Mapping
from typing import Any, Final

from gpu_control_plane.api.ray.names import NodeType
from gpu_control_plane.ray.cluster.manifests.containers import Part, port_named
from gpu_control_plane.ray.cluster.manifests.context import RAY_SERVICE, ClusterContext
from gpu_control_plane.ray.cluster.manifests.start_params import AGENT_PORT
from gpu_control_plane.ray.names import DASHBOARD_PORT, SERVE_PORT_NAME, SERVE_PORT_NUMBER
from gpu_control_plane.rules.ray.texts import at_least

_ONE_ADDRESS_SINCE: Final = (2, 53, 0)
"""The version of Ray from which one address answers for all of a node."""
_HEAD_TIMEOUT_SECONDS: Final = 5
_WORKER_TIMEOUT_SECONDS: Final = 2
_RAYLET_TIMEOUT_SECONDS: Final = 2
_GCS_TIMEOUT_SECONDS: Final = 10
_PROXY_TIMEOUT_SECONDS: Final = 10


def put_probes(container: Part, context: ClusterContext, node_type: NodeType, params: Mapping[str, str]) -> None:
    """Let the kubelet see whether Ray works. Requests for a service go only to workers whose proxy answers."""
    timeout = _HEAD_TIMEOUT_SECONDS if node_type is NodeType.HEAD else _WORKER_TIMEOUT_SECONDS
    agent = _port(params, "dashboard-agent-listen-port", int(AGENT_PORT))
    checks = [_wget(_RAYLET_TIMEOUT_SECONDS, agent, "api/local_raylet_healthz")]
    if node_type is NodeType.HEAD:
        checks.append(_wget(_GCS_TIMEOUT_SECONDS, _port(params, "dashboard-port", DASHBOARD_PORT), "api/gcs_healthz"))
    usual = (
        {"httpGet": {"path": "/api/healthz", "port": agent}}
        if has_one_health_address(context.cluster.spec.ray_version)
        else _command(checks)
    )
    if not container.get("livenessProbe"):
        container["livenessProbe"] = {**usual, **_times(delay=30, timeout=timeout, failures=120)}
    if container.get("readinessProbe"):
        return
    if context.origin_kind == RAY_SERVICE and node_type is NodeType.WORKER:
        checks.append(
            _wget(_PROXY_TIMEOUT_SECONDS, port_named(container, SERVE_PORT_NAME) or SERVE_PORT_NUMBER, "-/healthz")
        )
        container["readinessProbe"] = {**_command(checks), **_times(delay=10, timeout=timeout, failures=1)}
    else:
        container["readinessProbe"] = {**usual, **_times(delay=10, timeout=timeout, failures=10)}


def has_one_health_address(ray_version: str) -> bool:
    """Whether this Ray answers for the health of a node at one address. What cannot be read counts as older."""
    return at_least(ray_version, _ONE_ADDRESS_SINCE)


def _port(params: Mapping[str, str], name: str, default: int) -> int:
    given = params.get(name, "")
    return int(given) if given.isascii() and given.isdigit() else default


def _wget(timeout: int, port: int, path: str) -> str:
    return f"wget --tries 1 -T {timeout} -q -O- http://localhost:{port}/{path} | grep success"


def _command(checks: list[str]) -> dict[str, Any]:
    return {"exec": {"command": ["bash", "-c", " && ".join(checks)]}}


def _times(*, delay: int, timeout: int, failures: int) -> dict[str, int]:
    return {
        "initialDelaySeconds": delay,
        "timeoutSeconds": timeout,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }
