"""The two kinds have the fields that manifests for NVIDIA's operator use, and no other; each says what it is for."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.nvidia import DEFINITIONS, ClusterPolicy, ClusterPolicySpec, NVIDIADriver, NVIDIADriverSpec
from gpu_control_plane.api.nvidia.status import StackStatus, State
from gpu_control_plane.kube.crd import Definition
from unit.api.nvidia.stock import stock_driver, stock_policy

POLICY, DRIVER = (definition.schema()["properties"]["spec"] for definition in DEFINITIONS)

IMAGE = {"repository", "image", "version", "imagePullPolicy", "imagePullSecrets"}
OPERAND = IMAGE | {"enabled", "resources", "args", "env", "hostNetwork"}
MONITOR = {"enabled", "interval", "scrapeTimeout", "honorLabels", "additionalLabels", "relabelings"}
PROBE = {"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"}
OURS = {"paused", "canary"}
UPGRADE = {"autoUpgrade", "maxParallelUpgrades", "maxUnavailable", "podDeletion", "waitForCompletion", "drain"}
DRIVER_FIELDS = {
    *("usePrecompiled", "useOpenKernelModules", "kernelModuleType", "startupProbe", "livenessProbe"),
    *("readinessProbe", "rdma", "upgradePolicy", "manager", "repoConfig", "certConfig", "licensingConfig"),
    *("kernelModuleConfig", "secretEnv"),
}

each_kind = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("operator", {"runtimeClass", "metrics", "use_ocp_driver_toolkit", "defaultRuntime", "initContainer"}
            | {"labels", "annotations"}),
        ("operator.metrics", {"serviceMonitor"}),
        ("operator.metrics.serviceMonitor", MONITOR),
        ("daemonsets", {"labels", "annotations", "tolerations", "priorityClassName", "updateStrategy"}
            | {"rollingUpdate", "podSecurityContext"}),
        ("daemonsets.rollingUpdate", {"maxUnavailable"}),
        ("driver", OPERAND | DRIVER_FIELDS | {"useNvidiaDriverCRD", "virtualTopology"}),
        ("driver.startupProbe", PROBE),
        ("driver.livenessProbe", PROBE),
        ("driver.readinessProbe", PROBE),
        ("driver.rdma", {"enabled", "useHostMofed"}),
        ("driver.upgradePolicy", UPGRADE | OURS),
        ("driver.upgradePolicy.podDeletion", {"force", "timeoutSeconds", "deleteEmptyDir"}),
        ("driver.upgradePolicy.waitForCompletion", {"podSelector", "timeoutSeconds"}),
        ("driver.upgradePolicy.drain", {"enable", "force", "podSelector", "timeoutSeconds", "deleteEmptyDir"}),
        ("driver.manager", IMAGE | {"env"}),
        ("driver.repoConfig", {"configMapName"}),
        ("driver.certConfig", {"name"}),
        ("driver.licensingConfig", {"secretName", "configMapName", "nlsEnabled"}),
        ("driver.virtualTopology", {"config"}),
        ("driver.kernelModuleConfig", {"name"}),
        ("driver.resources", {"limits", "requests"}),
        ("driver.env[]", {"name", "value"}),
        ("toolkit", OPERAND | {"installDir"}),
        ("devicePlugin", OPERAND | {"config", "mps"}),
        ("devicePlugin.config", {"name", "default"}),
        ("devicePlugin.mps", {"root"}),
        ("dcgm", OPERAND | {"hostPort"}),
        ("dcgmExporter", OPERAND | {"config", "serviceMonitor", "service", "annotations", "hostPID", "hpcJobMapping"}
            | {"enablePodLabels", "enablePodUID", "podLabelAllowlistRegex"}),
        ("dcgmExporter.config", {"name"}),
        ("dcgmExporter.serviceMonitor", MONITOR),
        ("dcgmExporter.service", {"type", "internalTrafficPolicy"}),
        ("dcgmExporter.hpcJobMapping", {"enabled", "directory"}),
        ("gfd", OPERAND),
        ("mig", {"strategy"}),
        ("migManager", OPERAND | {"config", "gpuClientsConfig"}),
        ("migManager.config", {"name", "default"}),
        ("migManager.gpuClientsConfig", {"name"}),
        ("nodeStatusExporter", OPERAND),
        ("validator", OPERAND | {"driver", "toolkit", "cuda", "plugin", "vfioPCI", "vgpuManager", "vgpuDevices"}),
        ("validator.vfioPCI", {"env"}),
        ("gds", IMAGE | {"enabled", "env", "args"}),
        ("gdrcopy", IMAGE | {"enabled", "env", "args"}),
        ("sandboxWorkloads", {"enabled", "defaultWorkload", "mode"}),
        ("vfioManager", OPERAND | {"driverManager"}),
        ("vfioManager.driverManager", IMAGE | {"env"}),
        ("vgpuManager", OPERAND | {"driverManager", "kernelModuleConfig"}),
        ("vgpuDeviceManager", OPERAND | {"config"}),
        ("vgpuDeviceManager.config", {"name", "default"}),
        ("sandboxDevicePlugin", OPERAND),
        ("kataSandboxDevicePlugin", OPERAND),
        ("ccManager", OPERAND | {"defaultMode"}),
        ("kataManager", OPERAND | {"config"}),
        ("kataManager.config", {"artifactsDir", "runtimeClasses"}),
        ("kataManager.config.runtimeClasses[]", {"name", "nodeSelector", "artifacts"}),
        ("kataManager.config.runtimeClasses[].artifacts", {"url", "pullSecret"}),
        ("cdi", {"enabled", "nriPluginEnabled", "default"}),
        ("psa", {"enabled"}),
        ("psp", {"enabled"}),
        ("hostPaths", {"rootFS", "driverInstallDir", "kubeletRootDir"}),
    ],
)  # fmt: skip
def test_a_section_of_a_policy_has_these_fields(path: str, expected: set[str]) -> None:
    assert set(_at(POLICY, path)["properties"]) == expected


def test_a_policy_has_these_sections() -> None:
    required = {"operator", "daemonsets", "driver", "toolkit", "devicePlugin", "dcgm", "dcgmExporter"}
    assert set(POLICY["required"]) == required | {"nodeStatusExporter", "gfd"}
    assert set(POLICY["properties"]) - set(POLICY["required"]) == {
        *("mig", "migManager", "validator", "gds", "gdrcopy", "sandboxWorkloads", "vfioManager", "vgpuManager"),
        *("vgpuDeviceManager", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "ccManager", "kataManager"),
        *("cdi", "psa", "psp", "hostPaths"),
    }


def test_a_driver_has_these_fields() -> None:
    own = {"default", "driverType", "virtualTopologyConfig", "gds", "gdrcopy", "nodeSelector", "nodeAffinity"}
    pods = {"labels", "annotations", "tolerations", "priorityClassName", "podSecurityContext"}
    assert set(DRIVER["properties"]) == (OPERAND - {"enabled"}) | DRIVER_FIELDS | own | pods
    assert set(DRIVER["required"]) == {"default", "driverType", "image"}
    assert set(_at(DRIVER, "licensingConfig")["properties"]) == {"secretName", "name", "nlsEnabled"}
    assert set(_at(DRIVER, "repoConfig")["properties"]) == {"name"}
    assert set(_at(DRIVER, "virtualTopologyConfig")["properties"]) == {"name"}
    assert "pattern" not in _at(DRIVER, "image")


def test_these_are_the_only_defaults_of_a_policy() -> None:
    assert dict(_defaults(POLICY, "")) == {
        "operator.runtimeClass": "nvidia",
        "daemonsets.updateStrategy": "RollingUpdate",
        "driver.kernelModuleType": "auto",
        **_upgrade_defaults("driver.upgradePolicy", automatic=False),
        "toolkit.installDir": "/usr/local/nvidia",
        "devicePlugin.mps.root": "/run/nvidia/mps",
        "migManager.config.default": "all-disabled",
        "sandboxWorkloads.defaultWorkload": "container",
        "sandboxWorkloads.mode": "kubevirt",
        "vgpuDeviceManager.config.default": "default",
        "kataManager.config.artifactsDir": "/opt/nvidia-gpu-operator/artifacts/runtimeclasses",
        "cdi.enabled": True,
        "cdi.nriPluginEnabled": False,
        "cdi.default": False,
        "hostPaths.kubeletRootDir": "/var/lib/kubelet",
    }


def test_these_are_the_only_defaults_of_a_driver() -> None:
    assert dict(_defaults(DRIVER, "")) == {
        "default": False,
        "driverType": "gpu",
        "image": "nvcr.io/nvidia/driver",
        "kernelModuleType": "auto",
        **_upgrade_defaults("upgradePolicy", automatic=True),
    }


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("daemonsets.updateStrategy", ["RollingUpdate", "OnDelete"]),
        ("driver.kernelModuleType", ["auto", "open", "proprietary"]),
        ("mig.strategy", ["none", "single", "mixed"]),
        ("migManager.config.default", ["all-disabled", ""]),
        ("sandboxWorkloads.defaultWorkload", ["container", "vm-passthrough", "vm-vgpu"]),
        ("sandboxWorkloads.mode", ["kubevirt", "kata"]),
        ("ccManager.defaultMode", ["on", "off", "devtools"]),
    ],
)
def test_a_choice_has_these_values(path: str, values: list[str]) -> None:
    assert _at(POLICY, path)["enum"] == values


SWITCHES = {
    *("enabled", "hostNetwork", "hostPID", "honorLabels", "useNvidiaDriverCRD", "usePrecompiled", "useHostMofed"),
    *("useOpenKernelModules", "use_ocp_driver_toolkit", "nlsEnabled", "autoUpgrade", "force", "deleteEmptyDir"),
    *("enable", "enablePodLabels", "enablePodUID", "nriPluginEnabled", "paused"),
}
NUMBERS = {*PROBE, "timeoutSeconds", "maxParallelUpgrades", "hostPort", "nodes", "tolerationSeconds"}
LISTS = {
    *("imagePullSecrets", "args", "env", "tolerations", "relabelings", "podLabelAllowlistRegex", "runtimeClasses"),
}
MAPS = {"labels", "annotations", "nodeSelector", "additionalLabels", "limits", "requests"}
TYPES = {
    **dict.fromkeys(SWITCHES, "boolean"),
    **dict.fromkeys(NUMBERS, "integer"),
    **dict.fromkeys(LISTS, "array"),
    **dict.fromkeys(MAPS, "object"),
}
DEFAULTS_THAT_ARE_SWITCHES = {"cdi.default", "default"}
"""Elsewhere a `default` is the name of something."""


@pytest.mark.parametrize("schema", [POLICY, DRIVER], ids=["ClusterPolicy", "NVIDIADriver"])
def test_a_field_is_text_unless_it_is_known_to_be_something_else(schema: dict[str, Any]) -> None:
    for where, field in _everything(schema, ""):
        path, name = where[1:], where.rpartition(".")[2]
        if name.endswith(("[]", "{}")) or "properties" in field or "x-kubernetes-preserve-unknown-fields" in field:
            continue
        if path in DEFAULTS_THAT_ARE_SWITCHES:
            assert field["type"] == "boolean", path
        elif name == "maxUnavailable" and "upgradePolicy" in path:
            assert field["x-kubernetes-int-or-string"], path
        else:
            assert field["type"] == TYPES.get(name, "string"), path


@pytest.mark.parametrize(("schema", "path"), [(POLICY, "daemonsets.tolerations[]"), (DRIVER, "tolerations[]")])
def test_the_fields_of_a_toleration_are_checked_when_it_is_written(schema: dict[str, Any], path: str) -> None:
    """Otherwise `value: true` without quotes would be accepted, and no DaemonSet could be written."""
    fields = {name: field["type"] for name, field in _at(schema, path)["properties"].items()}
    assert fields == {**dict.fromkeys(("key", "operator", "value", "effect"), "string"), "tolerationSeconds": "integer"}


def test_a_runtime_class_of_kata_is_whole() -> None:
    kata = _at(POLICY, "kataManager.config.runtimeClasses[]")
    assert (kata["required"], kata["properties"]["artifacts"]["required"]) == (["name", "artifacts"], ["url"])


def test_a_section_that_is_absent_means_what_an_empty_one_means() -> None:
    """What the API server fills in and what the types assume are one and the same."""
    required: dict[str, Any] = {name: {} for name in POLICY["required"]}
    absent = msgspec.convert(required, ClusterPolicySpec)
    filled = msgspec.convert(
        required | {"cdi": {"enabled": True, "default": False}, "hostPaths": {}}, ClusterPolicySpec
    )
    assert (absent.cdi, absent.host_paths) == (filled.cdi, filled.host_paths)
    assert absent.cdi.enabled
    assert not absent.cdi.nri_plugin_enabled
    assert absent.sandbox_workloads.default_workload == "container"
    driver = msgspec.convert({}, NVIDIADriverSpec)
    assert (driver.default, driver.driver_type, driver.image) == (False, "gpu", "nvcr.io/nvidia/driver")


@each_kind
def test_every_object_of_a_spec_keeps_fields_it_does_not_know(definition: Definition) -> None:
    spec = definition.schema()["properties"]["spec"]
    losing = [
        path
        for path, schema in _everything(spec, "spec")
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields")
    ]
    assert losing == []


@each_kind
def test_every_field_has_a_sentence(definition: Definition) -> None:
    parts = (definition.schema()["properties"][part] for part in ("spec", "status"))
    fields = [field for part in parts for field in _everything(part, "") if not field[0].endswith(("[]", "{}"))]
    assert [path for path, schema in fields if not schema.get("description", "").endswith(".")] == []


def test_what_the_chart_makes_by_default_is_read_whole() -> None:
    policy = msgspec.convert(stock_policy(), ClusterPolicy)
    driver = msgspec.convert(stock_driver(), NVIDIADriver)
    assert policy.spec.driver.version == driver.spec.version == "595.91.07"
    assert driver.spec.default
    assert _contains(msgspec.to_builtins(_all_of(policy.spec)), stock_policy()["spec"])
    assert _contains(msgspec.to_builtins(_all_of(driver.spec)), stock_driver()["spec"])


def test_each_writer_of_a_status_writes_its_fields_only() -> None:
    assert msgspec.to_builtins(StackStatus()) == {}
    assert msgspec.to_builtins(StackStatus(state=State.NOT_READY)) == {"state": "notReady"}


def _upgrade_defaults(path: str, *, automatic: bool) -> dict[str, object]:
    leave = {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False}
    return {
        f"{path}.autoUpgrade": automatic,
        f"{path}.maxParallelUpgrades": 1,
        f"{path}.maxUnavailable": "25%",
        **{f"{path}.podDeletion.{name}": value for name, value in leave.items()},
        f"{path}.waitForCompletion.timeoutSeconds": 0,
        f"{path}.drain.enable": False,
        **{f"{path}.drain.{name}": value for name, value in leave.items()},
    }


def _at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.split("."):
        schema = schema["properties"][name.removesuffix("[]")]
        if name.endswith("[]"):
            schema = schema["items"]
    return schema


def _defaults(schema: dict[str, Any], path: str) -> Iterator[tuple[str, object]]:
    return ((where[1:], part["default"]) for where, part in _everything(schema, path) if "default" in part)


def _everything(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from _everything(field, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield f"{path}{mark}", schema[key]
            yield from _everything(schema[key], f"{path}{mark}")


def _all_of(part: object) -> object:
    """A struct as a dictionary with its defaults, under the names it has in YAML."""
    match part:
        case msgspec.Struct():
            fields = msgspec.structs.fields(part)
            return {field.encode_name: _all_of(getattr(part, field.name)) for field in fields}
        case tuple():
            return [_all_of(item) for item in part]
        case _:
            return part


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(name in whole and _contains(whole[name], value) for name, value in part.items())
    return bool(whole == part)
