"""NVIDIA's programs as the chart can bring them, for tests: everything on, and every field chosen."""

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

from helm.chart import OPERANDS, Objects

type Look = Callable[[Objects], object]

COMPONENTS: Final = {
    "gfd": "gpu-feature-discovery",
    "dcgm": "dcgm",
    "dcgmExporter": "dcgm-exporter",
    "validator": "validator",
}
"""What each section of the values brings, by the label of its pods."""
GFD, DCGM, EXPORTER, VALIDATOR = COMPONENTS.values()


def switched_on(*sections: str) -> dict[str, Any]:
    """Values with these programs, or all of them, and nothing else chosen."""
    chosen = sections or tuple(COMPONENTS)
    return {
        "bootstrap": {name: {"enabled": True, "image": f"registry.example/{COMPONENTS[name]}:v1"} for name in chosen}
    }


CHOSEN: Final[dict[str, Any]] = {
    "managedNodes": {
        "labelKey": "example.com/gpu",
        "enabledByDefault": False,
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    },
    "operator": {"namespace": OPERANDS},
    "bootstrap": {
        "migStrategy": "single",
        "runtimeClassName": "nvidia-cdi",
        "priorityClassName": "",
        "maxUnavailable": 3,
        "gfd": {
            "enabled": True,
            "image": "registry.example/plugin:v1",
            "sleepInterval": "5m",
            "featuresDir": "/var/lib/features.d",
            "nodeFeatureAPI": True,
            "failOnInitError": False,
            "hostSysPath": "/rootfs/sys",
            "config": "configurations",
            "defaultConfig": "usual",
            "resources": {"limits": {"memory": "465Mi"}},
        },
        "dcgm": {
            "enabled": True,
            "image": "registry.example/dcgm:v1",
            "port": 5566,
            "arguments": ["--log-level", "WARN"],
            "proftester": {"program": "dcgmproftester13", "arguments": ["-t", "1004", "-d", "10"]},
            "resources": {"limits": {"memory": "466Mi"}},
        },
        "dcgmExporter": {
            "enabled": True,
            "image": "registry.example/exporter:v1",
            "port": 9411,
            "intervalMilliseconds": 3600000,
            "resourceNames": ["gpu.deckhouse.io/training", "gpu.deckhouse.io/inference"],
            "labels": {"team": "gpu", "app.kubernetes.io/component": "stolen"},
            "annotations": {"prometheus.io/scrape": "true"},
            "metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, Heat.\nDCGM_FI_DEV_POWER_USAGE, gauge, Power.",
            "serviceMonitor": {
                "enabled": True,
                "interval": "45s",
                "labels": {"release": "prometheus"},
                "annotations": {"owner": "gpu"},
            },
            "resources": {"limits": {"memory": "467Mi"}},
        },
        "validator": {
            "enabled": True,
            "image": "registry.example/validator:v1",
            "enableNvidiaFSValidation": True,
            "enableGDRCopyValidation": True,
            "resources": {"limits": {"memory": "468Mi"}},
        },
    },
}
"""Every field, with another value than its default."""

BOOTSTRAP_SETS: Final[dict[str, dict[str, Any]]] = {
    "all": switched_on(),
    "chosen": CHOSEN,
    **{name: switched_on(name) for name in COMPONENTS},
}


def the_container(component: str, *path: str, name: str | None = None) -> Look:
    """Something of a container, the main one unless named, by its path; None if there is no such container."""

    def look(found: Objects) -> object:
        spec = found.pod(component)["spec"]
        every = [*spec["containers"], *spec.get("initContainers", ())]
        chosen = [each for each in every if each["name"] == (name or component)]
        return reduce(lambda part, step: part.get(step, {}), path, chosen[0]) if chosen else None

    return look


def variable(component: str, variable: str, name: str | None = None) -> Look:
    """What a container finds in its environment."""

    def look(found: Objects) -> object:
        env = the_container(component, "env", name=name)(found) or ()
        assert isinstance(env, list | tuple)
        return next((each["value"] for each in env if each["name"] == variable), None)

    return look


def steps(found: Objects) -> list[str]:
    """The checks of the validator."""
    return [each["name"] for each in found.pod(VALIDATOR)["spec"]["initContainers"]]
