"""Values are documented, known to the schema, and refused with a readable sentence where they make no sense."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from helm.chart import CHART, Helm, Refused

VALUES = CHART / "values.yaml"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
NOT_OURS = "global"


def test_the_schema_knows_exactly_the_values_there_are() -> None:
    assert set(_paths(yaml.safe_load(VALUES.read_text()))) == set(_known(SCHEMA)) - {NOT_OURS}


def test_every_value_is_explained() -> None:
    """By a comment above it. A section needs none: its values have them. What is in `resources` is Kubernetes'."""
    lines = VALUES.read_text().splitlines()
    explained = 0
    for number, (above, line) in enumerate(itertools.pairwise(lines), start=2):
        name, _, value = line.strip().partition(":")
        if (value or name == "resources") and not line.lstrip().startswith("#") and name not in ("requests", "limits"):
            assert above.lstrip().startswith("#"), f"values.yaml:{number}: {name} has no comment"
            explained += 1
    assert explained == len(list(_leaves(yaml.safe_load(VALUES.read_text()))))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"controler": {}}, r"additional properties 'controler' not allowed"),
        ({"agent": {"hostPid": True}}, r"at '/agent': additional properties 'hostPid' not allowed"),
        ({"controller": {"replicas": 0}}, r"at '/controller/replicas': minimum: got 0, want 1"),
        ({"controller": {"replicas": "2"}}, r"at '/controller/replicas': got string, want integer"),
        ({"controller": {"without": ["scheduler"]}}, r"'/controller/without/0': value must be one of 'inventory', "),
        ({"controller": {"without": ["operator"]}}, r"'/controller/without/0': value must be one of 'inventory', "),
        (
            {"controller": {"nvidiaNamespaces": ["Infra"]}},
            r"'/controller/nvidiaNamespaces/0': 'Infra' does not match",
        ),
        ({"controller": {"nfdNamespaces": ["Hardware"]}}, r"'/controller/nfdNamespaces/0': 'Hardware' does not match"),
        (
            {"controller": {"timings": {"inventory": {"nodeGracePeriod": "10 minutes"}}}},
            r"at '/controller/timings/inventory/nodeGracePeriod': '10 minutes' does not match pattern",
        ),
        (
            {"controller": {"timings": {"inventory": {"patience": "10m"}}}},
            r"at '/controller/timings/inventory': additional properties 'patience' not allowed",
        ),
        (
            {"operator": {"images": {"DRIVER": "x"}}},
            r"at '/operator/images': additional properties 'DRIVER' not allowed",
        ),
        ({"operator": {"namespace": "Operands"}}, r"at '/operator/namespace': 'Operands' does not match pattern"),
        ({"clusterPolicy": {"driver": {}}}, r"at '/clusterPolicy': additional properties 'driver' not allowed"),
        ({"clusterPolicy": {"spec": {"driver": 5}}}, r"at '/clusterPolicy/spec/driver': got number, want object"),
        ({"nvidiaDriver": {"name": ""}}, r"at '/nvidiaDriver/name': '' does not match pattern"),
        (
            {"operator": {"enabled": False}, "clusterPolicy": {"create": True}},
            r"clusterPolicy\.create and nvidiaDriver\.create need operator\.enabled",
        ),
        ({"ray": {"watchNamespace": "research"}}, r"at '/ray/watchNamespace': got string, want array"),
        ({"ray": {"watchNamespace": ["Research"]}}, r"at '/ray/watchNamespace/0': 'Research' does not match pattern"),
        ({"ray": {"batchScheduler": {"name": "default"}}}, r"at '/ray/batchScheduler/name': value must be one of ''"),
        (
            {"ray": {"env": {"ENABLE_WEBHOOKS": "true"}}},
            r"at '/ray/env': additional properties 'ENABLE_WEBHOOKS' not allowed",
        ),
        (
            {"ray": {"env": {"ENABLE_PROBES_INJECTION": False}}},
            r"at '/ray/env/ENABLE_PROBES_INJECTION': value must be one of 'true', 'false'",
        ),
        (
            {"ray": {"configuration": {"headSidecarContainers": [{"image": "x"}]}}},
            r"at '/ray/configuration/headSidecarContainers/0': missing property 'name'",
        ),
        (
            {"ray": {"enabled": True, "singleNamespaceInstall": True}},
            r"ray\.singleNamespaceInstall is for one namespace",
        ),
        (
            {"ray": {"enabled": True, "watchNamespace": ["d8-gpu-operator"]}},
            r"ray\.watchNamespace has d8-gpu-operator, where our own",
        ),
        ({"agent": {"hardware": "fake"}}, r"at '/agent/hardware': value must be one of 'real', 'simulated'"),
        (
            {"agent": {"conflictingResources": ["gpu"]}},
            r"at '/agent/conflictingResources/0': 'gpu' does not match pattern",
        ),
        ({"agent": {"unpooled": "gpu"}}, r"at '/agent/unpooled': 'gpu' does not match pattern"),
        (
            {"agent": {"runtime": {"configure": True, "default": True}}},
            r"agent\.runtime\.default needs agent\.runtime\.nvidiaRuntime",
        ),
        ({"agent": {"runtime": {"name": "rkt"}}}, r"at '/agent/runtime/name': value must be one of 'auto', "),
        ({"agent": {"runtime": {"config": "config.toml"}}}, r"at '/agent/runtime/config': 'config.toml' does not"),
        ({"agent": {"driverRoots": []}}, r"at '/agent/driverRoots': minItems: got 0, want 1"),
        (
            {"agent": {"containerDriverRoots": ["driver"]}},
            r"at '/agent/containerDriverRoots/0': 'driver' does not match",
        ),
        ({"agent": {"maxUnavailable": "0%"}}, r"at '/agent/maxUnavailable'"),
        ({"image": {"digest": "latest"}}, r"at '/image/digest': 'latest' does not match pattern"),
        ({"image": {"repository": ""}}, r"at '/image/repository': minLength: got 0, want 1"),
        ({"logLevel": "verbose"}, r"at '/logLevel': value must be one of 'debug', 'info', 'warning', 'error'"),
        ({"controller": {"spread": "Zones"}}, r"'/controller/spread': value must be one of 'Prefer', 'RequireHosts'"),
        (
            {"networkPolicy": {"metricsFrom": [{"namespace": "monitoring"}]}},
            r"at '/networkPolicy/metricsFrom/0': additional properties 'namespace' not allowed",
        ),
        (
            {"webhook": {"networkPolicy": {"from": [{"ipBlock": {"except": []}}]}}},
            r"at '/webhook/networkPolicy/from/0/ipBlock': missing property 'cidr'",
        ),
        # YAML reads Off without quotes as false.
        (
            {"verticalPodAutoscaler": {"updateMode": False}},
            r"at '/verticalPodAutoscaler/updateMode': value must be one of 'Off', 'Initial', 'Recreate'",
        ),
        ({"podSecurity": {"label": "privileged"}}, r"at '/podSecurity/label': got string, want boolean"),
        ({"priorityClasses": {"names": []}}, r"at '/priorityClasses': additional properties 'names' not allowed"),
        ({"webhook": {"timeoutSeconds": 60}}, r"at '/webhook/timeoutSeconds': maximum: got 60, want 30"),
    ],
    ids=str,
)
def test_values_without_sense_are_refused(helm: Helm, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        helm.template(values)


def _leaves(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from _leaves(value)
        else:
            yield name


def _paths(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict) and name not in ("resources", "nodeSelector"):
            yield from _paths(value, f"{prefix}{name}.")


def _known(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _known(part, f"{prefix}{name}.")
