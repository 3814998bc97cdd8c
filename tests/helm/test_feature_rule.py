"""The NodeFeatureRule is there exactly where Node Feature Discovery can read it, as written, and documented."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from gpu_control_plane.api.names import GROUP, Label
from helm.chart import CHART, Helm
from helm.nfd.machines import MACHINES, labels_for
from helm.nfd.rule import KIND, rules, shipped

DOCS: Final = Path(__file__).parents[2] / "docs/node-feature-discovery.md"
FEATURE: Final = "nfd.k8s-sigs.io/v1alpha1/NodeFeature"


@pytest.mark.parametrize(
    ("known", "enabled", "count"),
    [((KIND, FEATURE), True, 1), ((FEATURE,), True, 0), ((), True, 0), ((KIND, FEATURE), False, 0)],
    ids=["nfd", "only-our-nodefeature", "no-nfd", "switched-off"],
)
def test_the_rule_is_shipped_where_the_cluster_knows_the_kind(
    helm: Helm, known: tuple[str, ...], enabled: bool, count: int
) -> None:
    assert len(rules(helm, {"nodeFeatureRule": {"enabled": enabled}}, *known)) == count


def test_helm_leaves_the_templates_of_nfd_alone(helm: Helm) -> None:
    written = yaml.safe_load((CHART / "files/feature-rules.yaml").read_text())
    assert shipped(helm)["spec"]["rules"] == written
    assert "{{ len .pci.device }}" in written[0]["labelsTemplate"]


def test_the_rule_sets_the_label_that_brings_the_agent(helm: Helm) -> None:
    assert shipped(helm)["spec"]["rules"][0]["labels"][Label.GPU_PRESENT] == "true"


def test_every_label_and_module_is_documented(helm: Helm) -> None:
    text = DOCS.read_text()
    numbered = re.compile(r"device\.\d\d\.")
    names = {numbered.sub("device.NN.", name) for machine in MACHINES for name in labels_for(machine)}
    assert names
    for name in sorted(names):
        assert f"`{GROUP}/{name}`" in text, name
    for rule in shipped(helm)["spec"]["rules"]:
        for term in rule["matchFeatures"]:
            for value in term.get("matchName", {}).get("value", ()):
                assert f"`{value}`" in text, value
