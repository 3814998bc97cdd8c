"""Nine kinds of clusters and what people want of them: nodes, a policy, and what must have become of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from integration.stack.operator_env import gpu_node, merged, spec_of
from unit.api.nvidia.stock import stock_policy
from unit.operator.stack.daemonset_names import (
    CC,
    DCGM,
    DRIVER,
    EXPORTER,
    GFD,
    KATA_PLUGIN,
    MIG,
    MPS,
    PLUGIN,
    SANDBOX_PLUGIN,
    SANDBOX_VALIDATOR,
    STATUS_EXPORTER,
    TOOLKIT,
    VALIDATOR,
    VFIO,
    VGPU,
    VGPU_DEVICES,
)

USUAL = frozenset({DRIVER, TOOLKIT, VALIDATOR, PLUGIN, MPS, EXPORTER, GFD, MIG})
SIX_EIGHT, SIX_ELEVEN = "6.8.0-60-generic", "6.11.0-29-generic"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster when its policy is ready."""

    daemonsets: Mapping[str, DaemonSetManifest]
    objects: frozenset[str]
    """Everything else of the stack, as `Kind/name`."""
    placed: Mapping[str, frozenset[str]]
    """The DaemonSets that have a pod on each node."""

    def env(self, name: str) -> dict[str, str]:
        held = self.daemonsets[name].main.manifest.get("env", ())
        return {item["name"]: item["value"] for item in held if "value" in item}

    def runtime_class(self, name: str) -> str | None:
        found: str | None = self.daemonsets[name].pod.get("runtimeClassName")
        return found


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster to be."""

    nodes: Sequence[dict[str, Any]]
    spec: dict[str, Any]
    check: Callable[[Seen], None]
    config_maps: Mapping[str, Mapping[str, str]] = {}
    broken: bool = False
    """Whether each of its operands is broken once, too."""


def stock(**sections: Mapping[str, Any]) -> dict[str, Any]:
    """What NVIDIA's chart asks for, changed key by key."""
    return merged(spec_of(stock_policy()), **sections)


def _stock(seen: Seen) -> None:
    assert set(seen.daemonsets) == USUAL
    assert seen.daemonsets[DRIVER].main.manifest["image"] == "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"
    assert {f"RuntimeClass/{name}" for name in ("nvidia", "nvidia-legacy", "nvidia-cdi")} <= seen.objects
    assert seen.runtime_class(EXPORTER) == "nvidia"
    assert seen.env(TOOLKIT)["RUNTIME"] == "containerd"
    assert "Service/nvidia-dcgm" not in seen.objects
    assert seen.placed["stock-0"] == seen.placed["stock-1"] == USUAL - {MPS, MIG}


def _everything(seen: Seen) -> None:
    assert set(seen.daemonsets) == USUAL | {DCGM, STATUS_EXPORTER}
    assert {"Service/nvidia-dcgm", "Service/nvidia-node-status-exporter"} <= seen.objects
    driver = seen.daemonsets[DRIVER]
    assert {"nvidia-fs-ctr", "nvidia-gdrcopy-ctr", "nvidia-peermem-ctr"} <= {held.name for held in driver.containers()}
    assert seen.env(PLUGIN)["WHO"] == "a person"
    assert seen.env(EXPORTER)["DCGM_REMOTE_HOSTENGINE_INFO"] == "nvidia-dcgm:5555"
    assert seen.daemonsets[DCGM].main.manifest["resources"] == {
        "limits": {"memory": "1Gi"},
        "requests": {"cpu": "500m"},
    }
    for daemonset in seen.daemonsets.values():
        assert daemonset.template["metadata"]["labels"]["team"] == "ml"
        assert daemonset.pod["priorityClassName"] == "system-cluster-critical"
        assert daemonset.pod["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    sharing = seen.daemonsets[PLUGIN]
    assert sharing.has("config-manager")
    assert any(volume.get("configMap", {}).get("name") == "sharing" for volume in sharing.pod["volumes"])
    assert seen.placed["all-0"] == USUAL | {DCGM, STATUS_EXPORTER}


def _host_driver(seen: Seen) -> None:
    assert not {DRIVER, TOOLKIT} & set(seen.daemonsets)
    assert not {f"ServiceAccount/{name}" for name in ("nvidia-driver", "nvidia-container-toolkit")} & seen.objects
    assert {VALIDATOR, PLUGIN, EXPORTER, GFD} <= seen.placed["host-0"]
    assert "NVIDIA_CDI_HOOK_PATH" not in seen.env(PLUGIN)


def _without_cdi(seen: Seen) -> None:
    assert seen.env(TOOLKIT)["RUNTIME"] == "crio"
    assert seen.env(TOOLKIT)["CRIO_CONFIG_MODE"] == "hook"
    assert "CDI_ENABLED" not in seen.env(TOOLKIT)
    assert not any(seen.runtime_class(name) for name in seen.daemonsets)
    assert {name for name in seen.objects if name.startswith("RuntimeClass/")} == {"RuntimeClass/nvidia"}


def _nri(seen: Seen) -> None:
    assert not any(name.startswith("RuntimeClass/") for name in seen.objects)
    assert not any(seen.runtime_class(name) for name in seen.daemonsets)
    assert seen.env(TOOLKIT)["ENABLE_NRI_PLUGIN"] == "true"
    annotations = seen.daemonsets[EXPORTER].template["metadata"]["annotations"]
    assert annotations[f"nvidia.cdi.k8s.io/container.{EXPORTER}"] == "management.nvidia.com/gpu=all"


def _precompiled(seen: Seen) -> None:
    drivers = {name: held for name, held in seen.daemonsets.items() if name.startswith(DRIVER)}
    assert {held.main.manifest["image"] for held in drivers.values()} == {
        f"nvcr.io/nvidia/driver:595-{kernel}-ubuntu24.04" for kernel in (SIX_EIGHT, SIX_ELEVEN)
    }
    assert DRIVER not in drivers
    assert seen.placed["old-0"] & set(drivers) == seen.placed["old-1"] & set(drivers)
    assert len(seen.placed["new-0"] & set(drivers)) == 1
    assert not seen.placed["new-0"] & seen.placed["old-0"] & set(drivers)


def _sandbox(seen: Seen) -> None:
    assert seen.placed["sand-vfio"] == {SANDBOX_VALIDATOR, VFIO, SANDBOX_PLUGIN}
    assert seen.placed["sand-vgpu"] == {SANDBOX_VALIDATOR, VGPU, VGPU_DEVICES, SANDBOX_PLUGIN}
    assert seen.placed["sand-pod"] == USUAL - {MPS, MIG}
    assert not {KATA_PLUGIN, CC} & set(seen.daemonsets)
    assert seen.daemonsets[VGPU].main.manifest["image"] == "registry.example/vgpu/vgpu-manager:580.1-ubuntu24.04"


def _kata(seen: Seen) -> None:
    assert seen.placed["kata-0"] == {SANDBOX_VALIDATOR, VFIO, KATA_PLUGIN, CC}
    assert SANDBOX_PLUGIN not in seen.daemonsets
    assert seen.env(CC)["DEFAULT_CC_MODE"] == "devtools"


def _divided(seen: Seen) -> None:
    assert MIG in seen.placed["mig-0"]
    assert MIG not in seen.placed["mig-none"]
    assert seen.env(PLUGIN)["MIG_STRATEGY"] == "mixed"
    assert "ConfigMap/default-mig-parted-config" in seen.objects
    validator = seen.daemonsets[VALIDATOR]
    assert validator.volume("host-root")["hostPath"]["path"] == "/host-os"
    assert validator.volume("driver-install-dir")["hostPath"]["path"] == "/opt/driver"
    exporter = seen.daemonsets[EXPORTER].pod["volumes"]
    assert any(held.get("hostPath", {}).get("path") == "/data/kubelet/pod-resources" for held in exporter)


_WORKLOAD = "nvidia.com/gpu.workload.config"
_VGPU = {"enabled": True, "repository": "registry.example/vgpu", "image": "vgpu-manager", "version": "580.1"}
SCENARIOS: dict[str, Scenario] = {
    "stock": Scenario(nodes=[gpu_node("stock-0"), gpu_node("stock-1")], spec=stock(), check=_stock),
    "everything": Scenario(
        nodes=[
            gpu_node("all-0", labels={"nvidia.com/mps.capable": "true", "nvidia.com/mig.capable": "true"}),
            gpu_node("all-1"),
        ],
        spec=stock(
            dcgm={"enabled": True, "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "0.5"}}},
            nodeStatusExporter={"enabled": True},
            gds={"enabled": True},
            gdrcopy={"enabled": True},
            driver={"rdma": {"enabled": True}},
            devicePlugin={
                "config": {"name": "sharing", "default": "any"},
                "env": [{"name": "WHO", "value": "a person"}],
            },
            daemonsets={
                "labels": {"team": "ml"},
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "priorityClassName": "system-cluster-critical",
            },
        ),
        config_maps={
            "sharing": {"any": "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"}
        },
        check=_everything,
        broken=True,
    ),
    "host-driver": Scenario(
        nodes=[gpu_node("host-0")],
        spec=stock(driver={"enabled": False}, toolkit={"enabled": False}),
        check=_host_driver,
    ),
    "crio-without-cdi": Scenario(
        nodes=[gpu_node("crio-0", system=("rhel", "9.4"), runtime="cri-o://1.36.0")],
        spec=stock(cdi={"enabled": False}),
        check=_without_cdi,
    ),
    "nri": Scenario(nodes=[gpu_node("nri-0")], spec=stock(cdi={"nriPluginEnabled": True}), check=_nri),
    "precompiled": Scenario(
        nodes=[gpu_node("old-0"), gpu_node("old-1"), gpu_node("new-0", kernel=SIX_ELEVEN)],
        spec=stock(driver={"usePrecompiled": True, "version": "595"}),
        check=_precompiled,
    ),
    "sandbox": Scenario(
        nodes=[
            gpu_node("sand-vfio", labels={_WORKLOAD: "vm-passthrough"}),
            gpu_node("sand-vgpu", labels={_WORKLOAD: "vm-vgpu"}),
            gpu_node("sand-pod"),
        ],
        spec=stock(sandboxWorkloads={"enabled": True}, vgpuManager=_VGPU),
        check=_sandbox,
        broken=True,
    ),
    "kata": Scenario(
        nodes=[gpu_node("kata-0")],
        spec=stock(
            sandboxWorkloads={"enabled": True, "mode": "kata", "defaultWorkload": "vm-passthrough"},
            ccManager={"defaultMode": "devtools"},
        ),
        check=_kata,
        broken=True,
    ),
    "mig-and-host-paths": Scenario(
        nodes=[gpu_node("mig-0", labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}), gpu_node("mig-none")],
        spec=stock(
            mig={"strategy": "mixed"},
            hostPaths={"rootFS": "/host-os", "driverInstallDir": "/opt/driver", "kubeletRootDir": "/data/kubelet"},
        ),
        check=_divided,
    ),
}
