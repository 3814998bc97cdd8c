"""Which label a node gets by what discovery says of it."""

import pytest

from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFeature, NodeFeatureSpec, bus_feature, discovery_name
from gpu_control_plane.inventory.gate import wanted_label
from gpu_control_plane.kube.objects import ObjectMeta

NODE = "worker-3"


def feature(spec: NodeFeatureSpec, about: str = NODE) -> NodeFeature:
    return NodeFeature(metadata=ObjectMeta(name=discovery_name(NODE), labels={NODE_LABEL: about}), spec=spec)


def test_a_card_is_a_label_and_none_is_none() -> None:
    assert wanted_label(NODE, feature(bus_feature((h200(NODE, 0).pci,)))) == "true"
    assert wanted_label(NODE, feature(bus_feature(()))) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (feature(bus_feature(()), about="worker-4"), "about the node worker-4"),
        (feature(NodeFeatureSpec()), "no feature gpu.bus"),
    ],
)
def test_what_makes_no_sense_is_no_reason_to_change_a_label(said: NodeFeature, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        wanted_label(NODE, said)
