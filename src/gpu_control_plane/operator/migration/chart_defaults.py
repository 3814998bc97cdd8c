"""The default values of NVIDIA's chart. Data: a values file that contains only what was changed implies these.

Empty values, and values that equal the API's own defaults, are left out.
"""

from typing import Any, Final

CHART: Final = "v26.7.0"
"""The release of NVIDIA's chart whose defaults these are."""

_NVIDIA: Final = "nvcr.io/nvidia"
_CLOUD: Final = f"{_NVIDIA}/cloud-native"
_K8S: Final = f"{_NVIDIA}/k8s"

_IMAGES: Final = {
    "validator": (_NVIDIA, "gpu-operator", CHART),
    "driver": (_NVIDIA, "driver", "595.91.07"),
    "toolkit": (_K8S, "container-toolkit", "v1.20.0"),
    "devicePlugin": (_NVIDIA, "k8s-device-plugin", "v0.20.0"),
    "dcgm": (_CLOUD, "dcgm", "4.6.0-1-ubuntu24.04"),
    "dcgmExporter": (_K8S, "dcgm-exporter", "4.6.0-4.8.3-distroless"),
    "gfd": (_NVIDIA, "k8s-device-plugin", "v0.20.0"),
    "migManager": (_CLOUD, "k8s-mig-manager", "v0.15.0"),
    "nodeStatusExporter": (_NVIDIA, "gpu-operator", CHART),
    "gds": (_CLOUD, "nvidia-fs", "2.29.4"),
    "gdrcopy": (_CLOUD, "gdrdrv", "v2.6"),
    "vgpuManager": ("", "vgpu-manager", ""),
    "vgpuDeviceManager": (_CLOUD, "vgpu-device-manager", "v0.5.0"),
    "vfioManager": (_CLOUD, "k8s-driver-manager", "v0.12.0"),
    "sandboxDevicePlugin": (_NVIDIA, "kubevirt-gpu-device-plugin", "v1.6.0"),
    "kataSandboxDevicePlugin": (_CLOUD, "nvidia-sandbox-device-plugin", "v0.0.5"),
    "draDriver": (_NVIDIA, "dra-driver-nvidia-gpu", "v0.5.0"),
    "ccManager": (_CLOUD, "k8s-cc-manager", "v0.4.3"),
}
_MANAGER: Final = {"repository": _CLOUD, "image": "k8s-driver-manager", "version": "v0.12.0"}
_POLICY: Final = "IfNotPresent"
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"

_REST: Final[dict[str, dict[str, Any]]] = {
    "nfd": {"enabled": True},
    "psa": {"enabled": False},
    "cdi": {"enabled": True, "nriPluginEnabled": False},
    "sandboxWorkloads": {"enabled": False, "defaultWorkload": "container", "mode": "kubevirt"},
    "hostPaths": {"rootFS": "/", "driverInstallDir": "/run/nvidia/driver"},
    "daemonsets": {
        "priorityClassName": "system-node-critical",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "updateStrategy": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "1"},
    },
    "operator": {
        "runtimeClass": "nvidia",
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": _CONTROL_PLANE, "operator": "Equal", "value": "", "effect": "NoSchedule"}],
        "cleanupCRD": False,
        "upgradeCRD": True,
        "logging": {"level": "info", "timeEncoding": "epoch"},
        "annotations": {"openshift.io/scc": "restricted-readonly"},
        "resources": {
            "limits": {"cpu": "500m", "memory": "350Mi"},
            "requests": {"cpu": "200m", "memory": "100Mi"},
        },
        "repository": _NVIDIA,
        "image": "gpu-operator",
        "imagePullPolicy": _POLICY,
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [{"key": _CONTROL_PLANE, "operator": "In", "values": [""]}]},
                    }
                ]
            }
        },
    },
    "mig": {"strategy": "single"},
    "driver": {
        "enabled": True,
        "nvidiaDriverCRD": {"enabled": False, "deployDefaultCR": True, "driverType": "gpu"},
        "kernelModuleType": "auto",
        "usePrecompiled": False,
        "startupProbe": {
            "initialDelaySeconds": 60,
            "periodSeconds": 10,
            "timeoutSeconds": 60,
            "failureThreshold": 120,
        },
        "rdma": {"enabled": False, "useHostMofed": False},
        "upgradePolicy": {
            "autoUpgrade": True,
            "maxParallelUpgrades": 1,
            "maxUnavailable": "25%",
            "waitForCompletion": {"timeoutSeconds": 0},
            "gpuPodDeletion": {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
            "drain": {"enable": False, "force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
        },
        "manager": _MANAGER,
        "licensingConfig": {"nlsEnabled": True},
    },
    "toolkit": {"enabled": True, "installDir": "/usr/local/nvidia"},
    "devicePlugin": {"enabled": True, "mps": {"root": "/run/nvidia/mps"}},
    "dcgm": {"enabled": False},
    "dcgmExporter": {
        "enabled": True,
        "service": {"internalTrafficPolicy": "Cluster"},
        "serviceMonitor": {"enabled": True, "interval": "15s", "scrapeTimeout": "10s", "honorLabels": False},
    },
    "gfd": {"enabled": True},
    "migManager": {"enabled": True, "config": {"default": "all-disabled"}},
    "nodeStatusExporter": {"enabled": False},
    "gds": {"enabled": False},
    "gdrcopy": {"enabled": False},
    "vgpuManager": {"enabled": False, "driverManager": _MANAGER},
    "vgpuDeviceManager": {"enabled": True, "config": {"default": "default"}},
    "vfioManager": {"enabled": True, "driverManager": _MANAGER},
    "sandboxDevicePlugin": {"enabled": True},
    "kataSandboxDevicePlugin": {"enabled": True},
    "ccManager": {"enabled": True, "defaultMode": "on"},
    "clusterPolicy": {"deployCR": True},
    "gpuCluster": {"deployCR": False},
    "draDriver": {"imagePullPolicy": _POLICY, "computeDomains": {"enabled": True}},
}


def _with_images() -> dict[str, dict[str, Any]]:
    named = {
        section: {"repository": repository, "image": image, "version": version}
        for section, (repository, image, version) in _IMAGES.items()
    }
    return {section: named.get(section, {}) | _REST.get(section, {}) for section in (*_REST, "validator")}


DEFAULTS: Final = _with_images()
