"""Which pods nobody looks after once no one asks for drivers any more."""

from datetime import UTC, datetime

import pytest

from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.kube.objects import OwnerReference
from gpu_control_plane.operator.drivers.abandoned import came_or_went, without_owner
from gpu_control_plane.operator.views import OperandPod

DRIVER = {"app": "nvidia-driver-daemonset", "app.kubernetes.io/component": "nvidia-driver"}
RELEASED = {"app.kubernetes.io/component": "nvidia-driver"}
VGPU_MANAGER = {"app": "nvidia-vgpu-manager-daemonset"}
OWNER = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="some", uid="u1", controller=True)


def pod(labels: dict[str, str], *, owned: bool = False, deleting: bool = False) -> OperandPod:
    return OperandPod(
        metadata=ObjectMeta(
            name="some",
            labels=labels,
            owner_references=(OWNER,) if owned else (),
            deletion_timestamp=datetime(2026, 3, 2, tzinfo=UTC) if deleting else None,
        )
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod(DRIVER), True),
        (pod(RELEASED), True),
        (pod(VGPU_MANAGER), True),
        (pod({"app": "nvidia-dcgm"}), False),
        (pod(DRIVER, owned=True), False),
        (pod(VGPU_MANAGER, owned=True), False),
        (pod(DRIVER, deleting=True), False),
    ],
)
def test_drivers_and_vgpu_managers_without_a_daemonset_are_nobodys(found: OperandPod, expected: bool) -> None:
    assert without_owner(found) is expected
    assert came_or_went(None, found) is came_or_went(found, None) is expected


def test_one_that_is_let_go_has_come() -> None:
    assert came_or_went(pod(DRIVER, owned=True), pod(DRIVER))
    assert not came_or_went(pod(DRIVER), pod(RELEASED))
