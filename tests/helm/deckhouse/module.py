"""The Deckhouse module as tests look at it: packed, given settings as by Deckhouse, rendered by the real Helm."""

import copy
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from release.module import IMAGES, MODULE, module_files, unpack_module

from gpu_control_plane import __version__
from gpu_control_plane.kube.written_yaml import overlaid
from helm.chart import Helm, Objects

LIBRARY: Final = Path(__file__).parent / "lib_helm"
SETTINGS_SCHEMA: Final[dict[str, Any]] = yaml.safe_load((MODULE / "openapi/config-values.yaml").read_text())
APIS: Final = (
    "autoscaling.k8s.io/v1/VerticalPodAutoscaler",
    "deckhouse.io/v1alpha1/OperationPolicy",
    "deckhouse.io/v1alpha1/SecurityPolicy",
)
"""What Deckhouse's API servers have that templates ask about."""

type Settings = Mapping[str, Any]

GLOBAL: Final[dict[str, Any]] = {
    "enabledModules": ["cert-manager", "operator-prometheus-crd", "prometheus-crd"],
    "discovery": {
        "clusterControlPlaneIsHighlyAvailable": False,
        "clusterDomain": "cluster.local",
        "d8SpecificNodeCountByRole": {},
    },
    "modules": {
        "publicDomainTemplate": "%s.example.com",
        "ingressClass": "nginx",
        "https": {"mode": "CertManager", "certManager": {"clusterIssuerName": "letsencrypt"}},
    },
    "modulesImages": {
        "registry": {"base": "registry.example.com/deckhouse/modules", "dockercfg": "e30="},
        "digests": {"gpuControlPlane": {image: f"sha256:{image}" for image in IMAGES}},
    },
}
"""What Deckhouse tells every module about the cluster."""

REGISTRY: Final = {"base": "registry.example.com/modules", "dockercfg": "e30="}
"""Where the module comes from, as Deckhouse adds it to the settings."""

EVERY_PROGRAM: Final[dict[str, Any]] = {
    "gfd": {"enabled": True},
    "dcgm": {"enabled": True},
    "dcgmExporter": {"enabled": True},
    "validator": {"enabled": True},
}
SETTING_SETS: Final[dict[str, Settings]] = {
    "default": {},
    "nvidias-programs": {
        "bootstrap": {
            **EVERY_PROGRAM,
            "migStrategy": "Single",
            "gfd": {"enabled": True, "config": "gfd-configurations"},
            "dcgmExporter": {"enabled": True, "serviceMonitor": {"labels": {"team": "gpu"}}},
        },
        "highAvailability": True,
    },
    "exporter-alone": {"bootstrap": {"dcgmExporter": {"enabled": True}}},
    "opt-in": {
        "managedNodes": {"labelKey": "gpu.example.com/managed", "enabledByDefault": False},
        "discovery": {"enabled": False},
        "logLevel": "Warn",
    },
    "operator": {"operator": {"enabled": True}, "webhook": {"enabled": False}},
    "ray": {"ray": {"enabled": True, "watchNamespace": ["research"], "batchScheduler": {"name": "volcano"}}},
    "console": {"console": {"enabled": True, "allowedUserGroups": ["gpu-admins"]}},
    "unwatched": {"monitoring": {"serviceMonitor": False}, "access": {"poolReaders": ["system:authenticated"]}},
    "placed": {
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    },
}
"""What people are likely to set."""


class Module:
    """The packed module in a folder, with stand-ins for Deckhouse's library and its check of settings."""

    def __init__(self, helm: Helm, folder: Path) -> None:
        self.folder = folder
        self._helm = helm
        self._renders: dict[str, str] = {}
        self._objects: dict[str, Objects] = {}
        unpack_module(module_files(__version__), folder)
        shutil.copytree(LIBRARY, folder / "charts" / "deckhouse_lib_helm")
        # Deckhouse checks settings against openapi/ before it renders; Helm checks against this file.
        accepted = {**SETTINGS_SCHEMA, "properties": {**SETTINGS_SCHEMA["properties"], "registry": {"type": "object"}}}
        schema = {"type": "object", "properties": {"gpuControlPlane": accepted}}
        (folder / "values.schema.json").write_text(json.dumps(schema))

    def objects(self, settings: Settings, cluster: Mapping[str, Any] | None = None) -> Objects:
        """What Deckhouse would apply for these settings, in a cluster of which `cluster` says what is unusual."""
        text = self.render(settings, cluster)
        if text not in self._objects:
            self._objects[text] = Objects(yaml.load_all(text, yaml.CSafeLoader))
        return self._objects[text]

    def render(self, settings: Settings, cluster: Mapping[str, Any] | None = None) -> str:
        """The same as text; done once for each set of settings."""
        values = {
            "global": overlaid(GLOBAL, cluster or {}),
            "gpuControlPlane": overlaid(defaults(SETTINGS_SCHEMA), settings) | {"registry": REGISTRY},
        }
        key = json.dumps(values, sort_keys=True)
        if key not in self._renders:
            apis = [part for api in APIS for part in ("--api-versions", api)]
            # Deckhouse keeps its releases in a namespace of its own.
            place = ("--namespace", "d8-system", "--kube-version", "1.32.0")
            arguments = ("template", "gpu-control-plane", str(self.folder), *place, *apis)
            self._renders[key] = self._helm.run(*arguments, values=values)
        return self._renders[key]


def defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of somebody who sets nothing, as Deckhouse fills them in."""
    return {
        name: defaults(each) if "properties" in each else copy.deepcopy(each["default"])
        for name, each in schema["properties"].items()
        if "default" in each
    }


def leaves(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every single setting with its schema."""
    for name, each in schema.get("properties", {}).items():
        if "properties" in each:
            yield from leaves(each, (*path, name))
        else:
            yield (*path, name), each


def at(path: tuple[str, ...], value: object) -> dict[str, Any]:
    """Settings in which only this one is set."""
    settings: Any = value
    for name in reversed(path):
        settings = {name: settings}
    return dict(settings)
