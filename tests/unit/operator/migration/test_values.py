"""Values of NVIDIA's chart become values of ours, and every value that is not translated is reported."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia import ClusterPolicySpec, NVIDIADriverSpec
from gpu_control_plane.migration.key_mapping import KeyMapping
from gpu_control_plane.operator.migration.chart_defaults import CHART, DEFAULTS
from gpu_control_plane.operator.migration.values import BadValues, translate


def at(tree: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def nested(dotted: str, value: Any) -> dict[str, Any]:
    for name in reversed(dotted.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("key", "value", "where", "becomes"),
    [
        ("driver.version", "580.1", "clusterPolicy.spec.driver.version", "580.1"),
        ("driver.version", 595, "clusterPolicy.spec.driver.version", "595"),
        ("driver.enabled", False, "clusterPolicy.spec.driver.enabled", False),
        (
            "driver.upgradePolicy.gpuPodDeletion.force",
            True,
            "clusterPolicy.spec.driver.upgradePolicy.podDeletion.force",
            True,
        ),
        ("driver.upgradePolicy.autoUpgrade", False, "clusterPolicy.spec.driver.upgradePolicy.autoUpgrade", False),
        ("driver.nvidiaDriverCRD.enabled", True, "clusterPolicy.spec.driver.useNvidiaDriverCRD", True),
        (
            "daemonsets.rollingUpdate.maxUnavailable",
            3,
            "clusterPolicy.spec.daemonsets.rollingUpdate.maxUnavailable",
            "3",
        ),
        ("daemonsets.labels", {"a.b/c": "d"}, "clusterPolicy.spec.daemonsets.labels", {"a.b/c": "d"}),
        ("migManager.config.default", "", "clusterPolicy.spec.migManager.config.default", ""),
        ("devicePlugin.config.name", "plugin", "clusterPolicy.spec.devicePlugin.config.name", "plugin"),
        ("operator.runtimeClass", "gpu", "clusterPolicy.spec.operator.runtimeClass", "gpu"),
        (
            "operator.metrics.serviceMonitor.enabled",
            True,
            "clusterPolicy.spec.operator.metrics.serviceMonitor.enabled",
            True,
        ),
        ("operator.use_ocp_driver_toolkit", True, "clusterPolicy.spec.operator.use_ocp_driver_toolkit", True),
        ("operator.use_ocp_driver_toolkit", False, "clusterPolicy.spec.operator.use_ocp_driver_toolkit", None),
        ("operator.nodeSelector", {"a": "b"}, "controller.nodeSelector.a", "b"),
        ("operator.priorityClassName", "system-node-critical", "controller", None),
        ("operator.upgradeCRD", False, "crds.install", False),
        ("operator.cleanupCRD", True, "crds.removeOnUninstall", True),
        ("operator.logging.level", "warn", "logLevel", "warning"),
        ("operator.logging.level", "7", "logLevel", "debug"),
        ("clusterPolicy.deployCR", False, "clusterPolicy", {"create": False}),
        ("validator.version", "", "clusterPolicy.spec.validator.version", CHART),
        ("validator.version", "v25", "clusterPolicy.spec.validator.version", "v25"),
        ("dcgm", None, "clusterPolicy.spec.dcgm", None),
        ("driver.repoConfig.configMapName", "", "clusterPolicy.spec.driver.repoConfig", None),
        ("ccManager.defaultMode", "off", "clusterPolicy.spec.ccManager.defaultMode", "off"),
    ],
)
def test_a_value_goes_to_its_place(key: str, value: Any, where: str, becomes: Any) -> None:
    made = translate(nested(key, value)).values
    assert at(made, where) == becomes


@pytest.mark.parametrize(
    ("key", "value", "verdict"),
    [
        ("operator.affinity", {"nodeAffinity": {}}, None),
        ("operator.resources.limits.cpu", "2", KeyMapping.WITHOUT_EFFECT),
        ("operator.imagePullSecrets", ["registry"], KeyMapping.WITHOUT_EFFECT),
        ("devicePlugin.config.data", {"any": "x"}, KeyMapping.WITHOUT_EFFECT),
        ("driver.useOpenKernelModules", True, KeyMapping.WITHOUT_EFFECT),
        ("driver.nvidiaDriverCRD.nodeSelector", {"a": "b"}, KeyMapping.WITHOUT_EFFECT),
        ("gpuCluster.deployCR", True, KeyMapping.WITHOUT_EFFECT),
        ("extraObjects", [{"kind": "ConfigMap"}], KeyMapping.WITHOUT_EFFECT),
        ("platform.openshift", True, KeyMapping.WITHOUT_EFFECT),
        ("kataManager.enabled", True, KeyMapping.WITHOUT_EFFECT),
        ("operator.nonsense", 1, KeyMapping.UNKNOWN),
        ("driver.nonsense", 1, KeyMapping.UNKNOWN),
        ("driver.manager.nonsense", 1, KeyMapping.UNKNOWN),
        ("nonsense.inside", {"a": 1}, KeyMapping.UNKNOWN),
        ("driver.version", "1", None),
        ("extraObjects", [], None),
        ("gpuCluster.deployCR", False, None),
    ],
)
def test_values_without_a_place_are_reported(key: str, value: Any, verdict: KeyMapping | None) -> None:
    told = [note for note in translate(nested(key, value)).notes if note.key != "nfd.enabled"]
    assert [note.mapping for note in told] == ([verdict] if verdict else [])
    if verdict is not None:
        assert key.startswith(told[0].key)
        assert told[0].why


def test_an_unknown_value_is_kept_for_a_comment_and_not_in_the_values() -> None:
    made = translate({"driver": {"nonsense": {"deep": 1}}})
    assert [(note.key, note.value) for note in made.unknown] == [("driver.nonsense", {"deep": 1})]
    assert "nonsense" not in made.values["clusterPolicy"]["spec"]["driver"]


def test_node_feature_discovery_is_mentioned_only_where_the_chart_brought_it() -> None:
    assert [note.key for note in translate({}).notes] == ["nfd.enabled"]
    assert translate({"nfd": {"enabled": False}}).notes == ()


def test_the_defaults_of_the_chart_are_a_spec_of_ours_and_nothing_in_them_is_unknown() -> None:
    made = translate({})
    assert made.unknown == ()
    spec = msgspec.convert(made.values["clusterPolicy"]["spec"], ClusterPolicySpec)
    assert spec.driver.version == at(DEFAULTS, "driver.version")
    assert spec.dcgm.enabled is False
    assert spec.validator.image == "gpu-operator"
    assert spec.driver.upgrade_policy is not None
    assert spec.driver.upgrade_policy.pod_deletion is not None
    assert made.values["nvidiaDriver"] == {"create": False}


def test_the_agent_takes_nothing_from_nvidias_programs_unless_a_person_says_so() -> None:
    """Where it runs, their device plugin, toolkit and MIG manager leave, and nvidia.com/gpu is not offered."""
    assert translate({}).values["managedNodes"] == {"enabledByDefault": False}


def test_the_agent_does_nothing_twice_on_a_node_that_it_comes_to_serve() -> None:
    """Also while NVIDIA's release has the ClusterPolicy, and our values, for that, do not create it."""
    every = {"labels": False, "exporter": {"enabled": False}, "validator": {"enabled": False}}
    assert translate({}).values["agent"] == every
    off = {"gfd": {"enabled": False}, "dcgmExporter": {"enabled": False}}
    assert translate(off).values["agent"] == {"validator": {"enabled": False}}
    assert "agent" not in translate({"clusterPolicy": {"deployCR": False}}).values


def test_helms_heading_is_no_value() -> None:
    assert translate({"COMPUTED VALUES": None}) == translate({})


def test_the_default_driver_is_made_from_values_of_several_sections() -> None:
    made = translate(
        {
            "driver": {
                "nvidiaDriverCRD": {"enabled": True, "driverType": "vgpu"},
                "version": 580,
                "repoConfig": {"configMapName": "repos"},
                "licensingConfig": {"configMapName": "licence"},
                "virtualTopology": {"config": "topology"},
                "upgradePolicy": {"gpuPodDeletion": {"force": True}},
                "livenessProbe": {"periodSeconds": 5},
                "nonsense": 1,
            },
            "daemonsets": {"labels": {"team": "a"}, "tolerations": [{"operator": "Exists"}]},
            "gds": {"enabled": True},
        }
    )
    assert made.values["nvidiaDriver"]["create"] is True
    spec = msgspec.convert(made.values["nvidiaDriver"]["spec"], NVIDIADriverSpec)
    assert (spec.default, spec.driver_type, spec.version) == (True, "vgpu", "580")
    assert spec.repo_config is not None
    assert spec.licensing_config is not None
    assert spec.virtual_topology_config is not None
    assert (spec.repo_config.name, spec.licensing_config.name) == ("repos", "licence")
    assert spec.virtual_topology_config.name == "topology"
    assert spec.upgrade_policy is not None
    assert spec.upgrade_policy.pod_deletion is not None
    assert spec.upgrade_policy.pod_deletion.force
    assert (spec.labels, spec.tolerations) == ({"team": "a"}, ({"operator": "Exists"},))
    assert spec.gds is not None
    assert spec.gdrcopy is None
    assert made.values["clusterPolicy"]["spec"]["driver"] == {"enabled": True, "useNvidiaDriverCRD": True}
    assert {note.key for note in made.notes} == {"nfd.enabled", "driver.nonsense", "driver.livenessProbe"}


def test_without_a_default_driver_none_is_made() -> None:
    made = translate({"driver": {"nvidiaDriverCRD": {"enabled": True, "deployDefaultCR": False}}})
    assert made.values["nvidiaDriver"] == {"create": False}


def test_images_that_the_operator_knew_come_along() -> None:
    variables = [{"name": "DRIVER_IMAGE", "value": "r/driver:1"}, {"name": "HTTPS_PROXY", "value": "p"}]
    made = translate({"operator": {"env": variables}, "validator": {"version": "sha256:ab"}})
    assert made.values["operator"] == {
        "enabled": True,
        "images": {
            "DRIVER_IMAGE": "r/driver:1",
            "DRIVER_MANAGER_IMAGE": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
            "VALIDATOR_IMAGE": "nvcr.io/nvidia/gpu-operator@sha256:ab",
        },
    }
    assert "operator.env.HTTPS_PROXY" in {note.key for note in made.notes}


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"driver": "on"}, "driver"),
        ({"driver": {"upgradePolicy": True}}, "driver.upgradePolicy"),
        ({"operator": {"env": {"A": "b"}}}, "operator.env"),
    ],
)
def test_values_of_another_shape_are_refused_with_their_place(values: dict[str, Any], where: str) -> None:
    with pytest.raises(BadValues, match=f"^{where}: this should be "):
        translate(values)


_LEAVES: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", "x"]) | st.just([])
)
_KEYS = st.sampled_from(["enabled", "version", "odd"])
_SECTIONS = st.sampled_from([*sorted(DEFAULTS), "odd"])


@settings(deadline=None)
@given(st.dictionaries(_SECTIONS, st.none() | st.dictionaries(_KEYS, _LEAVES, max_size=3), max_size=4))
def test_every_key_of_a_file_is_used_or_reported_or_empty(values: dict[str, dict[str, Any] | None]) -> None:
    made = translate(values)
    told = {note.key for note in made.notes}
    for section, inner in values.items():
        odd = (inner or {}).get("odd")
        if odd is not None and odd not in ("", []) and section not in {"draDriver", "nfd", "gpuCluster"}:
            assert told & {"odd", f"{section}.odd"}
    known = {"operator", "controller", "crds", "logLevel", "clusterPolicy", "nvidiaDriver", "managedNodes", "agent"}
    assert set(made.values) <= known
