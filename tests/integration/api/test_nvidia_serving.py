"""How people meet NVIDIA's kinds: short names, columns, `kubectl explain`; and how a status is written."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_control_plane.api.nvidia import DEFINITIONS, StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.nvidia.status import StackStatus, State
from gpu_control_plane.kube import Client, FieldManager
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.errors import Invalid
from integration.api.conftest import Ask, in_time
from integration.api.rows import changed
from unit.api.nvidia.stock import stock_driver, stock_policy

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NAME = "what-is-shown"
OWN: dict[str, object] = {"metadata": {"name": NAME}}
MANAGER = FieldManager("tests")

Stored = StoredClusterPolicy | StoredNVIDIADriver

each = pytest.mark.parametrize(
    ("kind", "body", "columns"),
    [
        (StoredClusterPolicy, changed(stock_policy(), OWN), {"Status": "notReady"}),
        (StoredNVIDIADriver, changed(stock_driver(), OWN), {"Status": "notReady", "Default": True}),
    ],
    ids=["ClusterPolicy", "NVIDIADriver"],
)


@pytest.mark.parametrize(
    ("path", "plural", "names"),
    [
        ("/apis/nvidia.com/v1", "clusterpolicies", set()),
        ("/apis/nvidia.com/v1alpha1", "nvidiadrivers", {"nvd", "nvdriver", "nvdrivers"}),
    ],
)
def test_kinds_are_served_under_their_names(ask: Ask, path: str, plural: str, names: set[str]) -> None:
    def shown() -> dict[str, tuple[bool, set[str]]]:
        found = [one for one in ask(path).get("resources", ()) if one["name"] in (plural, f"{plural}/status")]
        return {one["name"]: (one["namespaced"], set(one.get("shortNames", ()))) for one in found}

    wanted: dict[str, tuple[bool, set[str]]] = {plural: (False, names), f"{plural}/status": (False, set())}
    assert in_time(shown, wanted) == wanted


@each
async def test_columns_show_what_matters(
    client: Client, ask: Ask, kind: type[Stored], body: dict[str, Any], columns: dict[str, object]
) -> None:
    await client.create(kind, body)
    await client.apply(
        kind, NAME, {"status": StackStatus(state=State.NOT_READY)}, manager=MANAGER, subresource="status"
    )
    table = ask(kind.resource.path(name=NAME), TABLE)
    await client.delete(kind, NAME)
    (row,) = table["rows"]
    shown = {column["name"]: cell for column, cell in zip(table["columnDefinitions"], row["cells"], strict=True)}
    assert shown.pop("Name") == NAME
    assert shown.pop("Age")
    assert shown == columns


@each
async def test_a_status_needs_a_state(
    client: Client, kind: type[Stored], body: dict[str, Any], columns: dict[str, object]
) -> None:
    made: Stored = await client.create(kind, {**body, "status": {"state": "ready"}})
    assert made.status == StackStatus()
    with pytest.raises(Invalid, match=r"status\.state: Required value"):
        await client.apply(kind, NAME, {"status": {"namespace": "a"}}, manager=MANAGER, subresource="status")
    status = StackStatus(state=State.READY, namespace="a", observed_generation=made.metadata.generation)
    written: Stored = await client.apply(kind, NAME, {"status": status}, manager=MANAGER, subresource="status")
    await client.delete(kind, NAME)
    assert written.status == status


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)
def test_explain_has_a_sentence_for_every_field(ask: Ask, definition: Definition) -> None:
    def silent() -> list[list[str]]:
        """The fields without one, of each schema of the kind."""
        path = f"/openapi/v3/apis/{definition.resource.api_version}"
        schemas = ask(path).get("components", {}).get("schemas", {})
        found = [one for name, one in schemas.items() if name.endswith(f".{definition.resource.kind}")]
        return [[at for at, field in _fields(schema, "") if not field.get("description")] for schema in found]

    nothing: list[list[str]] = [[]]
    assert in_time(silent, nothing) == nothing


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        if path or name in {"spec", "status"}:
            yield f"{path}.{name}", field
            yield from _fields(field, f"{path}.{name}")
    if "items" in schema:
        yield from _fields(schema["items"], f"{path}[]")
