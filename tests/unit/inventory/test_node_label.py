"""Which label a node gets by the NodeFeature of discovery."""

import pytest

from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFeature, NodeFeatureSpec, bus_feature, discovery_name
from gpu_control_plane.inventory.node_label import wanted_label
from gpu_control_plane.kube.objects import ObjectMeta

NODE = "worker-3"


def feature(spec: NodeFeatureSpec, about: str = NODE) -> NodeFeature:
    return NodeFeature(metadata=ObjectMeta(name=discovery_name(NODE), labels={NODE_LABEL: about}), spec=spec)


def test_a_node_with_a_card_gets_the_label_and_one_without_does_not() -> None:
    assert wanted_label(NODE, feature(bus_feature((h200(NODE, 0).pci,)))) == "true"
    assert wanted_label(NODE, feature(bus_feature(()))) is None


@pytest.mark.parametrize(
    ("published", "why"),
    [
        (feature(bus_feature(()), about="worker-4"), "about the node worker-4"),
        (feature(NodeFeatureSpec()), "no feature gpu.bus"),
    ],
)
def test_a_feature_that_makes_no_sense_changes_no_label(published: NodeFeature, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        wanted_label(NODE, published)
