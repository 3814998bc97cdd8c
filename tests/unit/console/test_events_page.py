"""Which Events the console shows as ours: whoever may write in a namespace may put our name on an Event there."""

import msgspec
import pytest

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.console.pages.events import is_believed
from gpu_control_plane.kube.events import Event


@pytest.mark.parametrize(
    ("namespace", "kind", "believed"),
    [
        ("default", "GPUPool", True),
        ("default", "GPUDevice", True),
        (NAMESPACE, "Deployment", True),
        ("team-a", "Pod", True),
        ("team-a", "GPUPool", False),
        ("team-a", "Deployment", False),
        ("team-a", None, False),
    ],
)
def test_a_tenant_tells_nothing_about_pools_cards_and_nodes(namespace: str, kind: str | None, believed: bool) -> None:
    about = {"apiVersion": "v1", "kind": kind, "name": "training"} if kind is not None else None
    event = msgspec.convert({"metadata": {"name": "e", "namespace": namespace}, "regarding": about}, Event)
    assert is_believed(event, NAMESPACE) is believed
