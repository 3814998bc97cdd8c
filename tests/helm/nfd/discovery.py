"""The real Node Feature Discovery at work: its master on a real API server, its worker on the files of a machine."""

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.local import Binaries, processes
from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.gobuild import find_go
from gpu_control_plane.local.versions import NFD
from helm.chart import Manifest
from helm.installed import Installed
from helm.nfd.machines import ours
from waiting import until

NAMESPACE: Final = "node-feature-discovery"
RULES: Final = "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeaturerules"
FEATURES: Final = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"

type Options = Mapping[str, object]

STOCK: Final[Options] = {}
"""NFD as it comes: `pci-0302_10de.present`."""
NVIDIAS: Final[Options] = {
    "deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"],
    "deviceLabelFields": ["vendor"],
}
"""As the chart of NVIDIA's operator sets it: `pci-10de.present`."""

_MASTER: Final = "control-plane"
_SOURCES: Final = "pci,system"


class Discovery:
    """Node Feature Discovery in a cluster. Its workers run once, for a given node and machine."""

    def __init__(self, cluster: Installed, programs: Binaries) -> None:
        self.cluster = cluster
        self._programs = programs

    def add_node(self, name: str) -> None:
        """As a kubelet registers it. NFD's patches need labels and annotations to be there."""
        metadata = {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        }
        self.cluster.request("POST", "/api/v1/nodes", {"metadata": metadata})

    def labels(self, node: str) -> dict[str, str]:
        labels: dict[str, str] = self.cluster.request("GET", f"/api/v1/nodes/{node}")["metadata"].get("labels", {})
        return labels

    def await_nodes(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Labels by node, when NFD has been at all of these. It writes all labels of a node at once."""
        found: dict[str, dict[str, str]] = {}

        def done() -> bool:
            nodes = self.cluster.request("GET", "/api/v1/nodes")["items"]
            found.update({node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes})
            return all(NodeLabel.OS_ID in found[name] for name in names)

        asyncio.run(until(done, within=120, saying="labels on every node"))
        return found

    def await_labels(self, node: str, expected: Mapping[str, str]) -> None:
        """Wait until a node has these labels of ours and no others."""
        asyncio.run(until(lambda: ours(self.labels(node)) == expected, within=120, saying=f"{expected} on {node}"))

    def look(self, node: str, files: Path, options: Options = STOCK, sources: str = _SOURCES) -> None:
        """Publish what the worker finds in these files as the features of a node."""
        command = [
            *(str(self._programs.path("nfd-worker")), "-oneshot", f"-kubeconfig={self.cluster.cluster.kubeconfig}"),
            *(f"-feature-sources={sources}", f"-label-sources={sources}"),
            f"-options={json.dumps({'sources': {'pci': options}})}",
        ]
        environ = {"NODE_NAME": node, "KUBERNETES_NAMESPACE": NAMESPACE}
        done = subprocess.run(command, cwd=files, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def add_feature(self, node: str, features: Manifest) -> None:
        """Features of a node from another source than the worker, which NFD merges with the worker's."""
        metadata = {"name": f"more-{node}", "labels": {"nfd.node.kubernetes.io/node-name": node}}
        self.cluster.request("POST", FEATURES, {**_kind("NodeFeature", metadata), "spec": {"features": features}})

    @contextmanager
    def master(self, log: Path) -> Iterator[None]:
        """The master at work, on a node of its own."""
        self.add_node(_MASTER)
        program, kubeconfig = str(self._programs.path("nfd-master")), self.cluster.cluster.kubeconfig
        with log.open("wb") as output:
            process = processes.spawn(
                [program, f"-kubeconfig={kubeconfig}", "-port=0"],
                output=output,
                environ={"NODE_NAME": _MASTER, "KUBERNETES_NAMESPACE": NAMESPACE},
            )
            try:
                yield
            finally:
                processes.end(process)


def definitions() -> list[Manifest]:
    """The CRDs of this release, from its source; `BuildFailed` says why they cannot be had. Kept in the cache."""
    kept = cache_folder() / "crds" / f"{NFD.name}-{NFD.version}.yaml"
    if not kept.is_file():
        text = (_source() / "deployment/base/nfd-crds/nfd-api-crds.yaml").read_bytes()
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as unfinished:
            unfinished.write(text)
        Path(unfinished.name).replace(kept)
    return [each for each in yaml.safe_load_all(kept.read_text()) if each]


def _source() -> Path:
    """Where Go keeps the source; it is fetched if it is not there yet."""
    answer = subprocess.run(
        [find_go(), "mod", "download", "-json", f"sigs.k8s.io/node-feature-discovery@{NFD.version}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"},
    )
    found: dict[str, Any] = json.loads(answer.stdout or "{}")
    if "Dir" not in found:
        raise BuildFailed(f"The source of {NFD.name} cannot be had: {found.get('Error') or answer.stderr}")
    return Path(found["Dir"])


def _kind(kind: str, metadata: Manifest) -> Manifest:
    return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": kind, "metadata": metadata}
