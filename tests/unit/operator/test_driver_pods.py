"""Which pods bring a driver, and which of them no DaemonSet owns."""

from datetime import UTC, datetime

import pytest

from gpu_control_plane.api.pod import Pod, PodSpec
from gpu_control_plane.kube import ObjectMeta
from gpu_control_plane.kube.objects import OwnerReference
from gpu_control_plane.kube.signal import Fired
from gpu_control_plane.operator.driver_pods import DriverPods, is_orphan, orphans_changed
from unit.operator.scripted_cache import ScriptedCache, running

DRIVER = {"app": "nvidia-driver-daemonset", "app.kubernetes.io/component": "nvidia-driver"}
RELEASED = {"app.kubernetes.io/component": "nvidia-driver"}
VGPU_MANAGER = {"app": "nvidia-vgpu-manager-daemonset"}
OWNER = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="some", uid="u1", controller=True)


def pod(labels: dict[str, str], *, owned: bool = False, deleting: bool = False, node: str = "") -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name="some",
            labels=labels,
            owner_references=(OWNER,) if owned else (),
            deletion_timestamp=datetime(2026, 3, 2, tzinfo=UTC) if deleting else None,
        ),
        spec=PodSpec(node_name=node),
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
def test_drivers_and_vgpu_managers_without_a_daemonset_are_orphans(found: Pod, expected: bool) -> None:
    assert is_orphan(found) is expected
    assert orphans_changed(None, found) is orphans_changed(found, None) is expected


def test_a_pod_that_loses_its_owner_is_one_orphan_more() -> None:
    assert orphans_changed(pod(DRIVER, owned=True), pod(DRIVER))
    assert not orphans_changed(pod(DRIVER), pod(RELEASED))


async def test_a_signal_names_the_node_where_a_driver_pod_comes_changes_or_goes() -> None:
    script, fired = ScriptedCache(Pod), list[str]()
    pods = DriverPods(script.cache)

    def record(_old: Fired | None, new: Fired | None) -> None:
        assert new is not None
        fired.append(new.key.name)

    pods.changed.on_change(record)
    async with running(script):
        await script.deliver(pod({"app": "nvidia-dcgm-exporter"}, node="a"))
        await script.deliver(pod(DRIVER))
        assert (fired, pods.on("a")) == ([], False), "other pods, and pods without a node, do not count"
        await script.deliver(pod(DRIVER, node="a"))
        assert (fired, pods.on("a")) == (["a"], True)
        await script.deliver(pod({"app": "another"}, node="a"))
        assert (fired, pods.on("a")) == (["a", "a"], False)
