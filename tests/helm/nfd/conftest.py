"""A cluster in which the real Node Feature Discovery works by the rule of our chart."""

from collections.abc import Iterator

import pytest

from gpu_control_plane.local import Component, ensure_binaries
from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.local.versions import NFD
from helm.chart import Helm
from helm.conftest import cannot, cluster_for
from helm.nfd.discovery import NAMESPACE, RULES, Discovery, definitions
from helm.nfd.rule import shipped_to


@pytest.fixture(scope="session")
def discovery(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Discovery]:
    """NFD's own CRDs, the rule as Helm renders it, and NFD's master at work."""
    try:
        crds = definitions()
    except BuildFailed as why:
        cannot(str(why))
        return
    folder = tmp_path_factory.mktemp("nfd")
    with cluster_for(helm, folder, Component.ETCD, Component.APISERVER) as cluster:
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for crd in crds:
            cluster.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        names = [f"crd/{crd['metadata']['name']}" for crd in crds]
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=120s", *names)
        cluster.request("POST", f"{RULES}?fieldValidation=Strict", shipped_to(helm, cluster.cluster.kubeconfig))
        made = Discovery(cluster, ensure_binaries(NFD.programs))
        with made.master(folder / "nfd-master.log"):
            yield made
