"""The NodeFeatureRule as Helm renders it, for a cluster that knows the kind and for one that does not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_control_plane.local.versions import KUBERNETES
from helm.chart import CHART, NAMESPACE, RELEASE, Helm, Manifest, Objects

KIND: Final = "nfd.k8s-sigs.io/v1alpha1/NodeFeatureRule"


def rules(helm: Helm, values: Mapping[str, Any] | None = None, *known: str) -> list[Manifest]:
    """The NodeFeatureRules of a release in a cluster that serves these kinds besides Kubernetes' own."""
    options = ("--kube-version", KUBERNETES.version, "--namespace", NAMESPACE)
    kinds = (option for kind in known for option in ("--api-versions", kind))
    rendered = helm.run("template", RELEASE, str(CHART), *options, *kinds, values=values)
    return Objects(yaml.safe_load_all(rendered)).of("NodeFeatureRule")


def shipped(helm: Helm) -> Manifest:
    """The rule that a cluster with Node Feature Discovery gets."""
    (rule,) = rules(helm, None, KIND)
    return rule


def shipped_to(helm: Helm, kubeconfig: Path) -> Manifest:
    """The rule as this cluster gets it: whether it knows the kind is for Helm to find out."""
    options = ("--validate", "--namespace", NAMESPACE, "--show-only", "templates/nfd/rule.yaml")
    rule: Manifest = yaml.safe_load(helm.run("template", RELEASE, str(CHART), *options, kubeconfig=kubeconfig))
    return rule
