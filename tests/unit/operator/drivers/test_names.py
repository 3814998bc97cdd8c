"""What an NVIDIADriver's objects are called."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia.nvidiadriver import DriverType
from gpu_control_plane.operator.drivers.names import daemonset_name, object_name, short_hash
from gpu_control_plane.operator.node_facts import OperatingSystem
from gpu_control_plane.operator.stack.variants import Variant

UID = "d5b3a1f2-38a9-4b72-bff1-21fd569fd305"
UBUNTU = Variant(system=OperatingSystem("ubuntu", "24.04"))
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def test_the_hash_is_that_of_nvidias_operator() -> None:
    assert short_hash(f"{UID}-414.92.202309282257") == "6f4fc4fc6"


def test_daemonsets_are_named_after_type_system_and_what_they_are_for() -> None:
    plain = daemonset_name(DriverType.GPU, UID, UBUNTU)
    assert plain == f"nvidia-gpu-driver-ubuntu24.04-{short_hash(UID)}"
    kernel = Variant(system=UBUNTU.system, kernel="6.8.0")
    release = Variant(system=OperatingSystem("rhcos", "4.14"), ostree="414.92.202309282257")
    assert (
        daemonset_name(DriverType.VGPU, UID, kernel) == f"nvidia-vgpu-driver-ubuntu24.04-{short_hash(f'{UID}-6.8.0')}"
    )
    assert daemonset_name(DriverType.GPU, UID, release) == "nvidia-gpu-driver-rhcos4.14-6f4fc4fc6"


def test_other_objects_are_named_after_the_nvidiadriver() -> None:
    assert object_name(DriverType.GPU, "demo", UBUNTU) == "nvidia-gpu-driver-demo-ubuntu24.04"
    assert object_name(DriverType.VGPU_HOST_MANAGER, "demo", UBUNTU) == "nvidia-vgpu-manager-demo-ubuntu24.04"


@given(
    kind=st.sampled_from([DriverType.GPU, DriverType.VGPU, DriverType.VGPU_HOST_MANAGER]),
    uid=st.uuids().map(str),
    version=st.from_regex(r"[0-9A-Za-z.-]{0,80}[0-9A-Za-z]", fullmatch=True),
)
def test_names_are_valid_whatever_the_system_is_called(kind: DriverType, uid: str, version: str) -> None:
    name = daemonset_name(kind, uid, Variant(system=OperatingSystem("sles", version)))
    assert len(name) <= 63
    assert name.endswith(f"-{short_hash(uid)}")
    assert NAME.fullmatch(name)
