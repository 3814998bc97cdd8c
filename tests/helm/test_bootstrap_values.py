"""Every value for NVIDIA's own programs arrives where it should, and those without sense are refused."""

import re
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Final

import pytest
import yaml

from helm.chart import CHART, Helm, Manifest, Objects, Refused
from helm.operands import (
    CHOSEN,
    COMPONENTS,
    DCGM,
    EXPORTER,
    GFD,
    VALIDATOR,
    Look,
    steps,
    switched_on,
    the_container,
    variable,
)


def daemonset(component: str) -> Callable[[Objects], Manifest]:
    return lambda found: found.one("DaemonSet", f"gpu-control-plane-{component}")


def pod(component: str, *path: str) -> Look:
    """Something of the pods of a component, by its path."""
    return lambda found: reduce(lambda part, name: part.get(name, {}), path, found.pod(component)["spec"])


def host_path(component: str, volume: str) -> Look:
    def look(found: Objects) -> object:
        volumes = {each["name"]: each for each in found.pod(component)["spec"]["volumes"]}
        return volumes[volume]["hostPath"]["path"]

    return look


def of_every(look: Callable[[str], Look]) -> Look:
    """The same for all programs, the agent among them."""

    def same(found: Objects) -> object:
        values = [look(component)(found) for component in (*COMPONENTS.values(), "agent")]
        assert all(value == values[0] for value in values)
        return values[0]

    return same


def gate(found: Objects) -> object:
    """What a node's own label must be, besides its having a card."""
    affinity = found.pod(GFD)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    gates = [term["matchExpressions"][1] for term in affinity["nodeSelectorTerms"]]
    assert all(each == gates[0] for each in gates)
    return gates[0]


def monitor(found: Objects) -> Manifest | None:
    return next(iter(found.of("ServiceMonitor")), None)


def file_of(component: str, key: str) -> Look:
    return lambda found: found.one("ConfigMap", f"gpu-control-plane-{component}")["data"][key]


def limit(component: str) -> Look:
    return the_container(component, "resources", "limits", "memory")


FIELDS: Final[dict[str, tuple[Look, object]]] = {
    "managedNodes.labelKey": (lambda found: gate(found)["key"], "example.com/gpu"),  # type: ignore[index]
    "managedNodes.enabledByDefault": (
        lambda found: {**gate(found), "key": ""},  # type: ignore[dict-item]
        {"key": "", "operator": "In", "values": ["true"]},
    ),
    "managedNodes.tolerations": (
        of_every(lambda component: pod(component, "tolerations")),
        [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    ),
    "bootstrap.migStrategy": (
        lambda found: {str(variable(each, "MIG_STRATEGY")(found)) for each in (GFD, DCGM)},
        {"single"},
    ),
    "bootstrap.runtimeClassName": (
        lambda found: {str(pod(each, "runtimeClassName")(found)) for each in COMPONENTS.values()},
        {"nvidia-cdi"},
    ),
    "bootstrap.priorityClassName": (
        lambda found: ["priorityClassName" in found.pod(each)["spec"] for each in COMPONENTS.values()],
        [False] * 4,
    ),
    "bootstrap.maxUnavailable": (
        lambda found: [_rolling(daemonset(each)(found)) for each in COMPONENTS.values()],
        [3] * 4,
    ),
    "bootstrap.gfd.image": (the_container(GFD, "image"), "registry.example/plugin:v1"),
    "bootstrap.gfd.sleepInterval": (variable(GFD, "GFD_SLEEP_INTERVAL"), "5m"),
    "bootstrap.gfd.featuresDir": (host_path(GFD, "features"), "/var/lib/features.d"),
    "bootstrap.gfd.nodeFeatureAPI": (variable(GFD, "GFD_USE_NODE_FEATURE_API"), "true"),
    "bootstrap.gfd.failOnInitError": (variable(GFD, "GFD_FAIL_ON_INIT_ERROR"), "false"),
    "bootstrap.gfd.hostSysPath": (host_path(GFD, "sys"), "/rootfs/sys"),
    "bootstrap.gfd.config": (variable(GFD, "CONFIG_FILE"), "/config/config.yaml"),
    "bootstrap.gfd.defaultConfig": (variable(GFD, "DEFAULT_CONFIG", "config-manager"), "usual"),
    "bootstrap.gfd.resources": (limit(GFD), "465Mi"),
    "bootstrap.dcgm.image": (the_container(DCGM, "image"), "registry.example/dcgm:v1"),
    "bootstrap.dcgm.port": (lambda found: _port(found, DCGM, "dcgm"), 5566),
    "bootstrap.dcgm.arguments": (
        file_of(DCGM, "nv-hostengine.arguments"),
        "--no-daemon\n--bind-interface\nALL\n--port\n5566\n--log-level\nWARN\n",
    ),
    "bootstrap.dcgm.proftester.program": (
        lambda found: (the_container(DCGM, "command", name="dcgmproftester")(found) or [""])[0],  # type: ignore[index]
        "dcgmproftester13",
    ),
    "bootstrap.dcgm.proftester.arguments": (
        lambda found: (the_container(DCGM, "command", name="dcgmproftester")(found) or [])[1:],  # type: ignore[index]
        ["-t", "1004", "-d", "10"],
    ),
    "bootstrap.dcgm.resources": (limit(DCGM), "466Mi"),
    "bootstrap.dcgmExporter.image": (the_container(EXPORTER, "image"), "registry.example/exporter:v1"),
    "bootstrap.dcgmExporter.port": (lambda found: _port(found, EXPORTER, "metrics"), 9411),
    "bootstrap.dcgmExporter.intervalMilliseconds": (variable(EXPORTER, "DCGM_EXPORTER_INTERVAL"), "3600000"),
    "bootstrap.dcgmExporter.resourceNames": (
        variable(EXPORTER, "NVIDIA_RESOURCE_NAMES"),
        "gpu.deckhouse.io/training,gpu.deckhouse.io/inference",
    ),
    "bootstrap.dcgmExporter.labels": (
        lambda found: [labels.get("team") for labels in (_service(found)["labels"], _template(found)["labels"])],
        ["gpu", "gpu"],
    ),
    "bootstrap.dcgmExporter.annotations": (
        lambda found: [
            meta.get("annotations", {}).get("prometheus.io/scrape") for meta in (_service(found), _template(found))
        ],
        ["true", "true"],
    ),
    "bootstrap.dcgmExporter.metrics": (
        file_of(EXPORTER, "metrics.csv"),
        "DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\nDCGM_FI_DEV_POWER_USAGE, gauge, Power.\n",
    ),
    "bootstrap.dcgmExporter.serviceMonitor.enabled": (lambda found: monitor(found) is not None, True),
    "bootstrap.dcgmExporter.serviceMonitor.interval": (
        lambda found: [each["interval"] for each in _part(monitor(found), "spec", "endpoints")],
        ["45s"],
    ),
    "bootstrap.dcgmExporter.serviceMonitor.labels": (
        lambda found: _part(monitor(found), "metadata", "labels", "release"),
        "prometheus",
    ),
    "bootstrap.dcgmExporter.serviceMonitor.annotations": (
        lambda found: _part(monitor(found), "metadata", "annotations"),
        {"owner": "gpu"},
    ),
    "bootstrap.dcgmExporter.resources": (limit(EXPORTER), "467Mi"),
    "bootstrap.validator.image": (the_container(VALIDATOR, "image"), "registry.example/validator:v1"),
    "bootstrap.validator.enableNvidiaFSValidation": (lambda found: "nvidia-fs-validation" in steps(found), True),
    "bootstrap.validator.enableGDRCopyValidation": (lambda found: "gdrcopy-validation" in steps(found), True),
    "bootstrap.validator.resources": (limit(VALIDATOR), "468Mi"),
}
"""Where each value arrives, and as what."""


@pytest.mark.parametrize("field", FIELDS)
def test_every_value_arrives(helm: Helm, field: str) -> None:
    look, expected = FIELDS[field]
    assert look(helm.objects(CHOSEN)) == expected
    if not field.endswith((".image", "validator.resources")):
        assert look(helm.objects(switched_on())) != expected, "the default says the same: nothing is proven"


def test_no_value_is_left_out() -> None:
    """Those that switch something on have tables of their own."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    every = {f"{section}.{path}" for section in ("managedNodes", "bootstrap") for path in _leaves(values[section])} - {
        f"bootstrap.{name}.enabled" for name in COMPONENTS
    }
    assert every == set(FIELDS)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"bootstrap": {"migStrategy": "none"}},
            r"at '/bootstrap/migStrategy': value must be one of 'single', 'mixed'",
        ),
        ({"bootstrap": {"gfd": {"interval": "1s"}}}, r"at '/bootstrap/gfd': additional properties 'interval'"),
        ({"bootstrap": {"gfd": {"sleepInterval": "often"}}}, r"at '/bootstrap/gfd/sleepInterval'"),
        ({"bootstrap": {"gfd": {"failOnInitError": "no"}}}, r"failOnInitError': got string, want boolean"),
        ({"bootstrap": {"dcgm": {"arguments": ["-p 1; reboot"]}}}, r"at '/bootstrap/dcgm/arguments/0'"),
        ({"bootstrap": {"dcgm": {"port": 70000}}}, r"port': maximum: got 70,000, want 65,535"),
        (
            {"bootstrap": {"dcgmExporter": {"resourceNames": ["gpu"]}}},
            r"resourceNames/0': 'gpu' does not match pattern",
        ),
        ({"bootstrap": {"maxUnavailable": "0%"}}, r"at '/bootstrap/maxUnavailable'"),
        ({"managedNodes": {"enabledByDefault": "false"}}, r"enabledByDefault': got string, want boolean"),
        ({"managedNodes": {"labelKey": "a b"}}, r"at '/managedNodes/labelKey': 'a b' does not match pattern"),
        ({"agent": {"exporter": {"enabled": "on"}}}, r"at '/agent/exporter/enabled': value must be one of true, false"),
    ],
    ids=str,
)
def test_values_without_sense_are_refused(helm: Helm, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        helm.template(values)


def test_the_page_names_values_that_there_are() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    page = (CHART.parents[1] / "docs/install.md").read_text()
    named = re.findall(r"`((?:agent|bootstrap|managedNodes)\.[A-Za-z.]+)", page)
    assert "bootstrap.gfd.enabled" in named
    for name in named:
        reduce(lambda part, word: part[word], name.split("."), values)


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _part(found: Manifest | None, *path: str) -> Any:
    return reduce(lambda part, name: part.get(name, {}), path, found or {})


def _rolling(found: Manifest) -> object:
    return found["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"]


def _port(found: Objects, component: str, name: str) -> object:
    """The port in the container, in its Service and in its callers."""
    (only,) = found.one("Service", f"gpu-control-plane-{component}")["spec"]["ports"]
    ports = the_container(component, "ports")(found)
    assert ports == [{"name": name, "containerPort": only["port"]}]
    configured = variable(EXPORTER, "DCGM_EXPORTER_LISTEN" if component == EXPORTER else "DCGM_REMOTE_HOSTENGINE_INFO")(
        found
    )
    assert str(configured).endswith(f":{only['port']}")
    return only["port"]


def _service(found: Objects) -> Manifest:
    return dict(found.one("Service", "gpu-control-plane-dcgm-exporter")["metadata"])


def _template(found: Objects) -> Manifest:
    return dict(found.pod(EXPORTER)["metadata"])
