"""The two objects that NVIDIA's chart makes with its default values: what most clusters hold when they come to us."""

from typing import Any, Final

CHART: Final = "v26.7.0"
REGISTRY: Final = "nvcr.io/nvidia"
CLOUD_NATIVE: Final = f"{REGISTRY}/cloud-native"

_MANAGER: Final = ("k8s-driver-manager", "v0.12.0")


def stock_policy() -> dict[str, Any]:
    """The ClusterPolicy `cluster-policy`, as it is sent to the API server; a new one with each call."""
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": "cluster-policy",
            "labels": {"app.kubernetes.io/component": "gpu-operator", "app.kubernetes.io/managed-by": "Helm"},
        },
        "spec": {
            "operator": {"runtimeClass": "nvidia", "use_ocp_driver_toolkit": False},
            "daemonsets": {
                "labels": {"helm.sh/chart": f"gpu-operator-{CHART}", "app.kubernetes.io/managed-by": "gpu-operator"},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "priorityClassName": "system-node-critical",
                "updateStrategy": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "1"},
            },
            **_node_software(),
            **_operands(),
            **_virtual_machines(),
            "cdi": {"enabled": True, "nriPluginEnabled": False},
            "psa": {"enabled": False},
            "hostPaths": {
                "rootFS": "/",
                "driverInstallDir": "/run/nvidia/driver",
                "kubeletRootDir": "/var/lib/kubelet",
            },
        },
    }


def stock_driver() -> dict[str, Any]:
    """The NVIDIADriver `default`, which the chart makes when NVIDIADrivers are switched on; a new one each call."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {
            "name": "default",
            "labels": {"app.kubernetes.io/component": "gpu-operator", "app.kubernetes.io/managed-by": "Helm"},
        },
        "spec": {
            "default": True,
            "driverType": "gpu",
            **_image(REGISTRY, "driver", "595.91.07"),
            "kernelModuleType": "auto",
            "usePrecompiled": False,
            "rdma": {"enabled": False, "useHostMofed": False},
            "manager": _image(CLOUD_NATIVE, *_MANAGER),
            "startupProbe": _startup_probe(),
            "repoConfig": {"name": ""},
            "certConfig": {"name": ""},
            "licensingConfig": {"secretName": "", "nlsEnabled": True},
            "virtualTopologyConfig": {"name": ""},
            "kernelModuleConfig": {"name": ""},
            "gds": {"enabled": False, **_image(CLOUD_NATIVE, "nvidia-fs", "2.29.4")},
            "gdrcopy": {"enabled": False, **_image(CLOUD_NATIVE, "gdrdrv", "v2.6")},
            "upgradePolicy": _upgrade_policy(),
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "priorityClassName": "system-node-critical",
        },
    }


def _node_software() -> dict[str, Any]:
    return {
        "driver": {
            "enabled": True,
            "useNvidiaDriverCRD": False,
            "usePrecompiled": False,
            "kernelModuleType": "auto",
            **_image(REGISTRY, "driver", "595.91.07"),
            "startupProbe": _startup_probe(),
            "rdma": {"enabled": False, "useHostMofed": False},
            "manager": _image(CLOUD_NATIVE, *_MANAGER),
            "repoConfig": {"configMapName": ""},
            "certConfig": {"name": ""},
            "licensingConfig": {"secretName": "", "nlsEnabled": True},
            "virtualTopology": {"config": ""},
            "kernelModuleConfig": {"name": ""},
            "upgradePolicy": _upgrade_policy(),
        },
        "toolkit": {
            "enabled": True,
            **_image(f"{REGISTRY}/k8s", "container-toolkit", "v1.20.0"),
            "installDir": "/usr/local/nvidia",
        },
        "gds": {"enabled": False, **_image(CLOUD_NATIVE, "nvidia-fs", "2.29.4")},
        "gdrcopy": {"enabled": False, **_image(CLOUD_NATIVE, "gdrdrv", "v2.6")},
    }


def _operands() -> dict[str, Any]:
    plugin = _image(REGISTRY, "k8s-device-plugin", "v0.20.0")
    operator = _image(REGISTRY, "gpu-operator", CHART)
    return {
        "devicePlugin": {"enabled": True, **plugin, "mps": {"root": "/run/nvidia/mps"}},
        "dcgm": {"enabled": False, **_image(CLOUD_NATIVE, "dcgm", "4.6.0-1-ubuntu24.04")},
        "dcgmExporter": {
            "enabled": True,
            **_image(f"{REGISTRY}/k8s", "dcgm-exporter", "4.6.0-4.8.3-distroless"),
            "service": {"internalTrafficPolicy": "Cluster"},
            "serviceMonitor": {
                "enabled": True,
                "interval": "15s",
                "scrapeTimeout": "10s",
                "honorLabels": False,
                "additionalLabels": {},
                "relabelings": [],
            },
        },
        "gfd": {"enabled": True, **plugin},
        "mig": {"strategy": "single"},
        "migManager": {
            "enabled": True,
            **_image(CLOUD_NATIVE, "k8s-mig-manager", "v0.15.0"),
            "config": {"name": "", "default": "all-disabled"},
            "gpuClientsConfig": {"name": ""},
        },
        "nodeStatusExporter": {"enabled": False, **operator},
        "validator": {**operator, "plugin": {"env": []}},
    }


def _virtual_machines() -> dict[str, Any]:
    return {
        "sandboxWorkloads": {"enabled": False, "defaultWorkload": "container", "mode": "kubevirt"},
        "vfioManager": {
            "enabled": True,
            **_image(CLOUD_NATIVE, *_MANAGER),
            "driverManager": _image(CLOUD_NATIVE, *_MANAGER),
        },
        "vgpuManager": {
            "enabled": False,
            "image": "vgpu-manager",
            "imagePullPolicy": "IfNotPresent",
            "driverManager": _image(CLOUD_NATIVE, *_MANAGER),
        },
        "vgpuDeviceManager": {
            "enabled": True,
            **_image(CLOUD_NATIVE, "vgpu-device-manager", "v0.5.0"),
            "config": {"name": "", "default": "default"},
        },
        "sandboxDevicePlugin": {"enabled": True, **_image(REGISTRY, "kubevirt-gpu-device-plugin", "v1.6.0")},
        "kataSandboxDevicePlugin": {"enabled": True, **_image(CLOUD_NATIVE, "nvidia-sandbox-device-plugin", "v0.0.5")},
        "ccManager": {"enabled": True, "defaultMode": "on", **_image(CLOUD_NATIVE, "k8s-cc-manager", "v0.4.3")},
        "kataManager": {
            "enabled": False,
            "config": {"artifactsDir": "/opt/nvidia-gpu-operator/artifacts/runtimeclasses", "runtimeClasses": []},
        },
    }


def _image(repository: str, image: str, version: str) -> dict[str, str]:
    return {"repository": repository, "image": image, "version": version, "imagePullPolicy": "IfNotPresent"}


def _startup_probe() -> dict[str, int]:
    return {"initialDelaySeconds": 60, "periodSeconds": 10, "timeoutSeconds": 60, "failureThreshold": 120}


def _upgrade_policy() -> dict[str, Any]:
    return {
        "autoUpgrade": True,
        "maxParallelUpgrades": 1,
        "maxUnavailable": "25%",
        "waitForCompletion": {"timeoutSeconds": 0, "podSelector": ""},
        "podDeletion": {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
        "drain": {
            "enable": False,
            "force": False,
            "podSelector": "",
            "timeoutSeconds": 300,
            "deleteEmptyDir": False,
        },
    }
