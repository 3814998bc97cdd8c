"""The configuration files of a node's programs. Pure: facts about a node in, the content of its files out."""

import json
from pathlib import Path

import msgspec

from gpu_control_plane.local.credentials import KeyPair
from gpu_control_plane.local.images import PAUSE
from gpu_control_plane.local.node.network import Attachment

KUBELET_PORT = 10250
KUBELET_HEALTH_PORT = 10248
PROXY_HEALTH_PORT = 10256
DOMAIN = "cluster.local"

KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Kernel settings that every kubelet changes. The node sees files in their place, so that the host's stay."""
BOOT_ID = "kernel/random/boot_id"


class Layout(msgspec.Struct, frozen=True):
    """A node's folder. Paths that programs have fixed are bind mounts of its parts in the node's mount namespace."""

    folder: Path

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def kubelet(self) -> Path:
        return self.folder / "kubelet"

    @property
    def kube_proxy(self) -> Path:
        return self.folder / "kube-proxy"

    @property
    def containerd(self) -> Path:
        return self.folder / "containerd"

    @property
    def cni(self) -> Path:
        return self.folder / "cni"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def kernel(self) -> Path:
        return self.folder / "kernel"

    @property
    def redirected(self) -> dict[str, Path]:
        """Paths that programs have fixed, and the folders mounted there."""
        return {
            "/run": self.run,
            "/var/lib/kubelet": self.kubelet,
            "/var/lib/cni": self.cni / "state",
            "/var/log/containers": self.logs / "containers",
        }

    @property
    def folders(self) -> list[Path]:
        """The folders that must exist before a program starts."""
        return [
            *self.redirected.values(),
            self.containerd / "conf.d",
            self.kube_proxy,
            self.cni / "net.d",
            self.logs / "pods",
            self.kernel,
            self.run / "cdi",
            self.kubelet / "device-plugins",
        ]


def containerd_config(layout: Layout, plugins: Path, runc: Path) -> str:
    """containerd's configuration. Files in `conf.d` are read after it, and win."""
    return f"""\
version = 3
root = "{layout.containerd / "root"}"
state = "/run/containerd"
imports = ["{layout.containerd / "conf.d"}/*.toml"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images']
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE}"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = ["/run/cdi"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{layout.cni / "net.d"}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{runc}"
"""


def pod_network(layout: Layout, attachment: Attachment) -> str:
    """The CNI configuration: each pod has a veth pair to the node, so that every packet of a pod passes the node.

    On a bridge, pods of one node would answer each other directly, and kube-proxy could not rewrite the answers.
    """
    addresses = {
        "type": "host-local",
        "dataDir": str(layout.run / "cni-addresses"),
        "ranges": [[{"subnet": attachment.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    point_to_point = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [point_to_point]}, indent=2)


def proxy_config(layout: Layout, attachment: Attachment, *, name: str) -> str:
    """kube-proxy's configuration: quick to react, and without changes of kernel settings."""
    untouched = ("tcpEstablishedTimeout", "tcpCloseWaitTimeout", "udpTimeout", "udpStreamTimeout")
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": name,
        "clientConnection": {"kubeconfig": str(layout.kube_proxy / "kubeconfig")},
        "bindAddress": attachment.address,
        "healthzBindAddress": f"{attachment.address}:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": "127.0.0.1:10249",
        # Requests that are not from pods, such as the API server's, are masqueraded: answers take the same way back.
        "detectLocalMode": "ClusterCIDR",
        "clusterCIDR": attachment.ranges.pods,
        "nftables": {"minSyncPeriod": "100ms"},
        "conntrack": {"maxPerCore": 0, "min": 0, **dict.fromkeys(untouched, "0s")},
    }
    return json.dumps(config, indent=2)


def kubelet_config(
    layout: Layout,
    attachment: Attachment,
    *,
    cgroup: str,
    authority: Path,
    serving: KeyPair,
    names: Path,
    dns: str | None = None,
) -> str:
    """The kubelet's configuration: quick to report, and without evictions, however full a developer's disk is."""
    never = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree")
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": attachment.address,
        "port": KUBELET_PORT,
        "healthzBindAddress": attachment.address,
        "healthzPort": KUBELET_HEALTH_PORT,
        "readOnlyPort": 0,
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "evictionHard": dict.fromkeys(never, "0%"),
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "1s",
        "podLogsDir": str(layout.logs / "pods"),
        "volumePluginDir": str(layout.kubelet / "volume-plugins"),
        "resolvConf": str(names),
        "clusterDomain": DOMAIN,
        "clusterDNS": [dns] if dns else [],
    }
    return json.dumps(config, indent=2)
