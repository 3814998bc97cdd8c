"""A rendered bring-up agrees with a second reading of Deckhouse's documentation, with Kubernetes and with our CRDs."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gpu_control_plane.deckhouse.check import KINDS
from gpu_control_plane.local.errors import BuildFailed
from helm.conftest import cannot
from helm.schemas import PATTERN, VERSIONS, kubernetes_schemas, our_schemas
from unit.deckhouse.descriptions import rendered

SCHEMAS: Final = yaml.safe_load((Path(__file__).parent / "deckhouse-schemas.yaml").read_text())
NATIVE: Final = {"index": 0, "slices": [{"profile": "7g.141gb", "count": 1}]}
CLUSTERS: Final[dict[str, dict[str, Any]]] = {
    "the example": {},
    "containerd 2": {"kubernetes.containerd": "V2", "nodeGroups.2.containerd": "V1", "nodeGroups.2.maxPods": 50},
    "cards served by Deckhouse": {
        "gpuControlPlane": None,
        "nodeGroups.2.gpu": {"setup": "Native", "native": {"sharing": "MIG", "customConfigs": [NATIVE]}},
        "nodeGroups.3.gpu": {"setup": "Native", "native": {"sharing": "TimeSlicing", "partitionCount": 4}},
    },
    "everything else": {
        "storage.ceph.subvolumeGroup": "csi",
        "ingress.0.interfaces": ["eth1"],
        "ingress.0.nodeGroup": "w-db",
        "access.users.0.ttl": "24h",
        "gpuControlPlane.source.dockerConfig": "file:login.json",
        "gpuControlPlane.pools.0.mode": "MIG",
        "gpuControlPlane.pools.0.migProfile": "1g.10gb",
    },
}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = our_schemas(tmp_path_factory.mktemp("schemas"))
    for given in SCHEMAS:
        group, _, version = given["apiVersion"].partition("/")
        name = f"{given['kind']}-{group.split('.')[0]}-{version}.json".lower()
        (folder / name).write_text(json.dumps(_schema(given)))
    return folder


def test_every_kind_of_deckhouse_has_a_second_schema() -> None:
    second = {(given["apiVersion"], given["kind"]) for given in SCHEMAS}
    assert set(KINDS) - second == {("v1", "Secret"), ("gpu.deckhouse.io/v1alpha1", "GPUPool")}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_is_rendered_conforms(cluster: str, schemas: Path, kubeconform: Path, tmp_path: Path) -> None:
    documents = [document.to_builtins() for document in rendered(CLUSTERS[cluster]).documents]
    (tmp_path / "rendered.yaml").write_text(yaml.safe_dump_all(documents))
    said = _kubeconform(kubeconform, schemas, tmp_path / "rendered.yaml")
    assert f"{len(documents)} resources found" in said, said
    assert f"Valid: {len(documents)}," in said, said


def test_a_field_that_deckhouse_does_not_have_is_found(schemas: Path, kubeconform: Path, tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    group = next(each.to_builtins() for each in rendered().documents if each.kind == "NodeGroup")
    group["spec"]["nodeTemplates"] = {}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(group))
    assert "nodeTemplates" in _kubeconform(kubeconform, schemas, tmp_path / "wrong.yaml")


def _kubeconform(kubeconform: Path, schemas: Path, file: Path) -> str:
    try:
        of_kubernetes = kubernetes_schemas(VERSIONS[-1])
    except BuildFailed as why:
        cannot(str(why))
        raise
    places = [f"-schema-location={folder}/{PATTERN}" for folder in (schemas, of_kubernetes)]
    done = subprocess.run(
        [kubeconform, "-strict", "-summary", *places, file], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def _schema(given: dict[str, Any]) -> Any:
    properties = {"apiVersion": {"enum": [given["apiVersion"]]}, "kind": {"enum": [given["kind"]]}}
    if "spec" not in given:
        return _closed({"required": given["required"], "properties": {**properties, **given["properties"]}})
    metadata = {"type": "object", "required": ["name"], "additionalProperties": True}
    return _closed(
        {"required": ["metadata", "spec"], "properties": {**properties, "metadata": metadata, "spec": given["spec"]}}
    )


def _closed(schema: Any) -> Any:
    """Objects take the fields that are named and no others."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        closed |= {"type": "object", "additionalProperties": False}
    return closed
