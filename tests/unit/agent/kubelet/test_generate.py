"""The committed messages are those of the `.proto` files."""

import pytest

from gpu_control_plane.agent.kubelet import generate
from gpu_control_plane.agent.kubelet.protocol import deviceplugin_pb2, podresources_pb2


def test_generated_messages_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(("--check",)) == 0, capsys.readouterr().err


def test_every_protocol_has_messages_and_types() -> None:
    assert sorted(path.name for path in generate.generated()) == [
        "cri_pb2.py",
        "cri_pb2.pyi",
        "deviceplugin_pb2.py",
        "deviceplugin_pb2.pyi",
        "podresources_pb2.py",
        "podresources_pb2.pyi",
    ]


def test_the_wire_is_the_kubelets() -> None:
    """Bytes by the kubelet's own field numbers, so that a wrong one cannot hide on both sides of a test."""
    grant = deviceplugin_pb2.ContainerAllocateResponse(
        envs={"A": "b"},
        mounts=(deviceplugin_pb2.Mount(container_path="c", host_path="h", read_only=True),),
        devices=(deviceplugin_pb2.DeviceSpec(container_path="c", host_path="h", permissions="rw"),),
        cdi_devices=(deviceplugin_pb2.CDIDevice(name="v/c=n"),),
    )
    assert grant.SerializeToString() == (
        b"\x0a\x06\x0a\x01A\x12\x01b"
        b"\x12\x08\x0a\x01c\x12\x01h\x18\x01"
        b"\x1a\x0a\x0a\x01c\x12\x01h\x1a\x02rw"
        b"\x2a\x07\x0a\x05v/c=n"
    )
    pods = podresources_pb2.ListPodResourcesResponse.FromString(
        b"\x0a\x15\x0a\x01p\x12\x01n\x1a\x0d\x0a\x01c\x12\x06\x0a\x01r\x12\x01d\x18\x07"
    )
    (container,) = pods.pod_resources[0].containers
    assert (container.name, container.devices[0].resource_name, list(container.devices[0].device_ids)) == (
        "c",
        "r",
        ["d"],
    )
