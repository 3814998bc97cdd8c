"""The CRDs of Ray say what the reference of KubeRay says: fields, defaults, values, columns, versions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api import ray
from gpu_control_plane.api.ray import reasons
from gpu_control_plane.api.ray.cluster import ClusterCondition, RayClusterSpec, RayClusterStatus
from gpu_control_plane.api.ray.names import Annotation, Finalizer, Label
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.schema import structural

PAGE = (Path(__file__).parents[4] / "docs/api-ray.md").read_text()
SPECS = {
    "RayCluster": """headGroupSpec workerGroupSpecs rayVersion enableInTreeAutoscaling suspend headServiceAnnotations
        upgradeStrategy authOptions autoscalerOptions gcsFaultToleranceOptions networkPolicy tlsOptions
        historyServerOptions managedBy""",
    "RayJob": """entrypoint runtimeEnvYAML jobId metadata submissionMode rayClusterSpec clusterSelector
        submitterPodTemplate submitterConfig entrypointNumCpus entrypointNumGpus entrypointResources
        activeDeadlineSeconds preRunningDeadlineSeconds backoffLimit shutdownAfterJobFinishes ttlSecondsAfterFinished
        suspend deletionStrategy managedBy""",
    "RayService": """rayClusterConfig serveConfigV2 serveService excludeHeadPodFromServeSvc suspend
        rayClusterDeletionDelaySeconds upgradeStrategy serviceUnhealthySecondThreshold
        deploymentUnhealthySecondThreshold managedBy""",
    "RayCronJob": """schedule jobTemplate timeZone suspend concurrencyPolicy startingDeadlineSeconds
        successfulJobsHistoryLimit failedJobsHistoryLimit""",
}
PARTS = {
    "autoscalerOptions": """resources image imagePullPolicy securityContext env envFrom volumeMounts command args
        version idleTimeoutSeconds upscalingMode""",
    "gcsFaultToleranceOptions": """backend redisAddress redisUsername redisPassword externalStorageNamespace storage""",
    "gcsFaultToleranceOptions.storage": "claimName size storageClassName accessModes subPath deletionPolicy",
    "authOptions": "mode secretName enableK8sTokenAuth",
    "networkPolicy": "mode head worker workerGroups",
    "networkPolicy.head": "ingressRules egressRules",
    "networkPolicy.workerGroups": "groupName ingressRules egressRules",
    "tlsOptions": "enabled",
    "historyServerOptions.collectorOptions": "image imagePullPolicy resources env",
    "headGroupSpec": """template rayStartParams resources labels serviceType headService enableIngress
        ingressOptions""",
    "headGroupSpec.ingressOptions": "host path pathType tls",
    "workerGroupSpecs": """groupName template replicas minReplicas maxReplicas numOfHosts priority idleTimeoutSeconds
        suspend scaleStrategy rayStartParams resources labels""",
    "workerGroupSpecs.scaleStrategy": "workersToDelete",
}
STATUSES = {
    "RayCluster": """state reason desiredCPU desiredMemory desiredGPU desiredTPU readyWorkerReplicas
        availableWorkerReplicas desiredWorkerReplicas minWorkerReplicas maxWorkerReplicas head endpoints lastUpdateTime
        stateTransitionTimes observedGeneration conditions""",
    "RayJob": """jobId rayClusterName dashboardURL jobStatus jobDeploymentStatus reason message startTime endTime
        succeeded failed rayJobInfo rayClusterStatus jobStatusCheckFailureStartTime observedGeneration""",
    "RayService": """conditions serviceStatus numServeEndpoints activeServiceStatus pendingServiceStatus lastUpdateTime
        observedGeneration""",
}

each_kind = pytest.mark.parametrize("definition", ray.DEFINITIONS, ids=lambda one: one.resource.kind)


def properties(definition: Definition, part: str) -> dict[str, Any]:
    fields: dict[str, Any] = definition.schema()["properties"][part]["properties"]
    return fields


def inside(path: str) -> set[str]:
    """Names of fields at a path of a RayCluster's spec."""
    schema = structural(RayClusterSpec)
    for name in path.split("."):
        schema = schema["properties"][name]
        schema = schema.get("items", schema)
    return set(schema["properties"])


@each_kind
def test_a_spec_has_the_fields_of_the_reference(definition: Definition) -> None:
    assert set(SPECS[definition.resource.kind].split()) == set(properties(definition, "spec"))


@pytest.mark.parametrize("path", PARTS)
def test_a_part_has_the_fields_of_the_reference(path: str) -> None:
    assert inside(path) == set(PARTS[path].split())


@each_kind
def test_a_status_has_the_fields_of_the_reference(definition: Definition) -> None:
    wanted = STATUSES.get(definition.resource.kind, "")
    assert set(wanted.split()) <= set(properties(definition, "status"))


@each_kind
def test_statuses_take_states_that_came_later(definition: Definition) -> None:
    """But for conditions, whose shape is Kubernetes' own."""
    closed = [path for path, schema in walk(definition.schema()["properties"]["status"], "status") if "enum" in schema]
    assert [path for path in closed if not path.endswith("conditions[].status")] == []


@each_kind
def test_versions_are_those_that_kuberay_serves(definition: Definition) -> None:
    versions = definition.manifest()["spec"]["versions"]
    older = [] if definition.resource.kind == "RayCronJob" else [("v1alpha1", True, False, True)]
    assert [(one["name"], one["served"], one["storage"], one.get("deprecated", False)) for one in versions] == [
        ("v1", True, True, False),
        *older,
    ]
    assert definition.manifest()["spec"]["names"]["categories"] == ["all"]
    assert "shortNames" not in definition.manifest()["spec"]["names"]


def test_defaults_are_those_of_the_reference() -> None:
    found = {
        path: schema["default"]
        for definition in ray.DEFINITIONS
        for path, schema in walk(definition.schema()["properties"]["spec"], "")
        if "default" in schema and "luster" not in path.split(".")[1]
    }
    group = ".workerGroupSpecs[]"
    assert {path: value for path, value in found.items() if not path.startswith(".jobTemplate")} == {
        f"{group}.replicas": 0,
        f"{group}.minReplicas": 0,
        f"{group}.maxReplicas": 2**31 - 1,
        f"{group}.numOfHosts": 1,
        ".submissionMode": "K8sJobMode",
        ".backoffLimit": 0,
        ".ttlSecondsAfterFinished": 0,
        ".deletionStrategy.deletionRules[].condition.ttlSeconds": 0,
        ".upgradeStrategy.clusterUpgradeOptions.maxSurgePercent": 100,
        ".concurrencyPolicy": "Allow",
        ".successfulJobsHistoryLimit": 3,
        ".failedJobsHistoryLimit": 1,
    }


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("RayJob", "activeDeadlineSeconds"),
        ("RayJob", "preRunningDeadlineSeconds"),
        ("RayJob", "ttlSecondsAfterFinished"),
        ("RayJob", "backoffLimit"),
        ("RayService", "rayClusterDeletionDelaySeconds"),
    ],
)
def test_a_time_is_one_that_there_is(kind: str, field: str) -> None:
    """Beyond 32 bits of seconds a deadline would be after the last year."""
    definition = next(one for one in ray.DEFINITIONS if one.resource.kind == kind)
    assert properties(definition, "spec")[field]["format"] == "int32"


@pytest.mark.parametrize("name", ["suspend", "enable_in_tree_autoscaling", "upgrade_strategy", "auth_options"])
def test_absent_is_told_from_a_value_where_that_matters(name: str) -> None:
    (field,) = [one for one in msgspec.structs.fields(RayClusterSpec) if one.name == name]
    assert field.default is None


def test_every_link_of_the_page_leads_to_a_heading() -> None:
    titles = re.findall("^#+ (.*)$", PAGE, re.MULTILINE)
    headings = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= headings


def test_the_page_has_every_kind_and_every_name() -> None:
    for definition in ray.DEFINITIONS:
        assert f"## {definition.resource.kind}\n" in PAGE
    for vocabulary in (Label, Annotation, Finalizer, ClusterCondition, reasons.ClusterReason, reasons.ServiceReason):
        assert all(f"`{name.value}`" in PAGE for name in vocabulary)
    assert all(f"`{name}`" in PAGE for name in structural(RayClusterStatus)["properties"])


def walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")
