import json

import msgspec
import pytest

from gpu_control_plane.agent.cdi.edits import DeviceNode, Edits, Hook, device_node_edits, merged
from gpu_control_plane.agent.cdi.spec import Device, card_name, decode, encode, instance_name, qualified_name, spec
from unit.agent.cdi.builders import CARD, common, device, node
from unit.agent.cdi.rules import violations

_ELSEWHERE = DeviceNode(path="/dev/nvidia0", host_path="/run/nvidia/driver/dev/nvidia0", type="c", major=195, minor=0)
_FOR_A_GROUP = DeviceNode(path="/dev/dri/renderD128", type="c", major=226, minor=128, gid=992)
_HOOKED = Edits(hooks=(Hook(hook_name="createContainer", path="/usr/bin/nvidia-cdi-hook", args=("a", "b")),))


@pytest.mark.parametrize(
    ("devices", "edits", "version"),
    [
        pytest.param([device(CARD)], common(), "0.3.0", id="plain"),
        pytest.param([device(CARD)], _HOOKED, "0.3.0", id="hooks"),
        pytest.param([device(CARD)], Edits(), "0.3.0", id="nothing in common"),
        pytest.param([Device(CARD, device_node_edits([_ELSEWHERE]))], common(), "0.5.0", id="a file elsewhere"),
        pytest.param([device(CARD)], device_node_edits([_ELSEWHERE]), "0.5.0", id="a control file elsewhere"),
        pytest.param([device("0000-card")], common(), "0.5.0", id="a name that begins with a digit"),
        pytest.param([Device(CARD, device_node_edits([_FOR_A_GROUP]))], common(), "0.7.0", id="a file for a group"),
    ],
)
def test_the_file_is_valid_and_claims_the_least_version(devices: list[Device], edits: Edits, version: str) -> None:
    document = json.loads(encode(spec(devices, edits)))

    assert violations(document) == []
    assert document["cdiVersion"] == version


def test_what_is_written_can_be_read_back() -> None:
    content = spec(
        [Device(CARD, device_node_edits([_ELSEWHERE, _FOR_A_GROUP])), device("b", 1)], merged([common(), _HOOKED])
    )

    assert decode(encode(content)) == content


def test_the_order_of_devices_does_not_matter() -> None:
    one, two = device("a"), device("b", 1)

    assert encode(spec([one, two], common())) == encode(spec([two, one], common()))


@pytest.mark.parametrize("data", [b"", b"{}", b'{"kind": "\xff"}', b"\0\1"])
def test_what_is_no_specification_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(data)


@pytest.mark.parametrize("profile", ["1g.18gb", "1g.18gb+me", "1g.24gb-me", "7g.141gb", "1g.24gb+me.all"])
def test_names_of_instances_are_valid_and_differ(profile: str) -> None:
    names = [card_name(CARD), *(instance_name(CARD, profile, start) for start in range(8))]
    edits = device_node_edits([node(0)])

    assert violations(msgspec.to_builtins(spec([Device(name, edits) for name in names], common()))) == []
    assert len(set(names)) == len(names)


def test_a_device_is_asked_for_by_its_qualified_name() -> None:
    assert qualified_name(instance_name(CARD, "1g.18gb+me", 3)) == f"gpu.deckhouse.io/gpu={CARD}:1g.18gb.me:3"


def test_nothing_is_brought_twice() -> None:
    shared = device_node_edits([node(0)])

    assert merged([shared, device_node_edits([node(0), node(1)]), common(), common()]) == msgspec.structs.replace(
        common(), device_nodes=(node(0), node(1), *common().device_nodes)
    )
