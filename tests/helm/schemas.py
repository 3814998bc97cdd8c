"""JSON schemas of Kubernetes' own kinds and of ours, in the form that kubeconform wants, kept in the cache by version.

They are made from the OpenAPI document inside the module `k8s.io/kubernetes`, so no schema host is needed, and Go's
checksum database vouches for them. `python -m helm.schemas` makes all of them beforehand.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.local.folders import cache_folder
from gpu_control_plane.local.gobuild import find_go
from gpu_control_plane.local.versions import KUBERNETES

VERSIONS: Final = ("v1.32.13", "v1.33.13", "v1.34.4", "v1.35.4", KUBERNETES.version)
"""The last release of each supported minor version when this was written, and the one tested most."""
CRDS: Final = Path(__file__).parents[2] / "src/gpu_control_plane/api/crds"
PATTERN: Final = "{{ .ResourceKind }}{{ .KindSuffix }}.json"

type Schema = dict[str, Any]

_FORM: Final = "1"
"""Another one when schemas are made differently."""
_REFERENCE: Final = "#/definitions/"


def kubernetes_schemas(version: str) -> Path:
    """The folder with the schemas of a Kubernetes version; `BuildFailed` says why there is none."""
    folder = cache_folder() / "schemas" / f"{version}-{_FORM}"
    if folder.is_dir():
        return folder
    document = json.loads((_module(version) / "api/openapi-spec/swagger.json").read_bytes())
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    for name, schema in _standalone(document["definitions"]):
        (unfinished / name).write_text(json.dumps(schema))
    try:
        unfinished.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished)
    return folder


def conforms(kubeconform: Path, schemas: Path, *what: Path) -> None:
    """Kubeconform accepts everything in these files and folders, and knows all of it."""
    done = subprocess.run(
        [kubeconform, "-strict", "-summary", "-schema-location", f"{schemas}/{PATTERN}", *what],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


def our_schemas(folder: Path) -> Path:
    """The schemas of our kinds, as the CRDs have them."""
    for file in CRDS.glob("*.yaml"):
        crd = yaml.safe_load(file.read_text())["spec"]
        for version in crd["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {}}
            name = _file_name(crd["group"], version["name"], crd["names"]["kind"])
            (folder / name).write_text(json.dumps(schema))
    return folder


def _module(version: str) -> Path:
    """Where Go keeps the source of this version; it is fetched if it is not there yet."""
    go = find_go()
    answer = subprocess.run(
        [go, "mod", "download", "-json", f"k8s.io/kubernetes@{version}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"},
    )
    found: dict[str, str] = json.loads(answer.stdout or "{}")
    if "Dir" not in found:
        raise BuildFailed(f"The source of Kubernetes {version} cannot be had: {found.get('Error') or answer.stderr}")
    return Path(found["Dir"])


def _standalone(definitions: dict[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """A schema for each kind, with everything it refers to inside."""
    strict = {name: _strict(schema) for name, schema in definitions.items()}
    for name, schema in definitions.items():
        for served in schema.get("x-kubernetes-group-version-kind", ()):
            needed = {each: strict[each] for each in _closure(name, strict)}
            yield (
                _file_name(served["group"], served["version"], served["kind"]),
                {"$ref": f"{_REFERENCE}{name}", "definitions": needed},
            )


def _closure(name: str, definitions: dict[str, Schema]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += _references(definitions[current])
    return found


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(target := part.get("$ref"), str):
            yield target.removeprefix(_REFERENCE)
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _strict(schema: Schema) -> Schema:
    """The same without what JSON schema does not know; objects take no fields that are not named."""
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    if "Quantity is a fixed-point" in schema.get("description", ""):
        return {"type": ["string", "number"]}
    made: Schema = {name: schema[name] for name in ("type", "$ref", "required", "enum", "pattern") if name in schema}
    if "properties" in schema:
        made["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _strict(schema["additionalProperties"])
    elif "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    if "items" in schema:
        made["items"] = _strict(schema["items"])
    return made


def _file_name(group: str, version: str, kind: str) -> str:
    """As kubeconform fills `PATTERN`."""
    suffix = f"{group.split('.', maxsplit=1)[0]}-{version}" if group else version
    return f"{kind}-{suffix}.json".lower()


if __name__ == "__main__":
    try:
        for each in VERSIONS:
            kubernetes_schemas(each)
    except BuildFailed as why:  # the tests that need them will say so, too
        sys.stderr.write(f"Leaving out the schemas of Kubernetes. {why}\n")
