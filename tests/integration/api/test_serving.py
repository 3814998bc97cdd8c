"""How people meet the API: short names, `kubectl get gpus`, columns, selectors, `kubectl explain`."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_control_plane.api import DEFINITIONS, GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.examples import device, h200, manifest, node_state, pool
from gpu_control_plane.kube import Client, FieldManager, Object, Selection
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.local import Cluster, ensure_binaries
from integration.api.conftest import Ask, in_time

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
GROUP_PATH = "/apis/gpu.deckhouse.io/v1alpha1"


async def present(client: Client, thing: Object) -> None:
    """Create an object with its status."""
    body = manifest(thing)
    await client.create(type(thing), body)
    share = {"status": body["status"]}
    await client.apply(type(thing), thing.name, share, manager=FieldManager("tests"), subresource="status")


def served(ask: Ask) -> list[dict[str, Any]]:
    """The resources of our group, by discovery."""
    return list(ask(GROUP_PATH).get("resources", ()))


def test_kubectl_get_gpus_shows_all_kinds(ask: Ask) -> None:
    def shown() -> set[str]:
        return {one["kind"] for one in served(ask) if "gpus" in one.get("categories", ())}

    kinds = {"GPUApproval", "GPUDevice", "GPUNodeState", "GPUPool"}
    assert in_time(shown, kinds) == kinds


async def test_kubectl_get_gpu_shows_one_card_by_its_name(client: Client, api_server: Cluster, tmp_path: Path) -> None:
    """A category of several kinds cannot be asked for by name: `you must specify only one resource`."""
    name = "worker-9-0000-18-00-0"
    spec = {"nodeName": "worker-9", "pciAddress": "0000:18:00.0"}
    await client.create(GPUDevice, {"metadata": {"name": name}, "spec": spec})
    kubectl = str(ensure_binaries(["kubectl"]).path("kubectl"))
    command = (kubectl, "--kubeconfig", str(api_server.kubeconfig), "--cache-dir", str(tmp_path))
    ran = await asyncio.to_thread(
        subprocess.run, [*command, "get", "gpu", name, "-o", "name"], capture_output=True, text=True, check=False
    )
    assert (ran.stdout.strip(), ran.stderr) == (f"gpudevice.gpu.deckhouse.io/{name}", "")


@pytest.mark.parametrize(
    ("plural", "names"),
    [
        ("gpudevices", {"gpu", "gpudev", "gdev"}),
        ("gpunodestates", {"gns", "gpunodeinventory", "gpunodeinventories"}),
        ("gpuapprovals", {"gapp"}),
        ("gpupools", {"gpool", "gp"}),
    ],
)
def test_kinds_are_reachable_by_their_short_names(ask: Ask, plural: str, names: set[str]) -> None:
    def shown() -> list[set[str]]:
        return [set(one["shortNames"]) for one in served(ask) if one["name"] == plural]

    assert in_time(shown, [names]) == [names]


@pytest.mark.parametrize(
    ("thing", "always", "wide"),
    [
        (
            device(),
            {"Node": "worker-3", "Product": "NVIDIA H200", "State": "Assigned", "Pool": "training", "Reason": None},
            {
                "Healthy": "True",
                "Memory": 143771,
                "UUID": h200("worker-3", 4).uuid,
                "Address": "0000:9a:00.0",
                "Namespace": "team-vision",
                "Pod": "pretrain-4",
                "Busy": 0,
            },
        ),
        (
            node_state(),
            {"Cards": 8, "Used": None, "Free": None, "Ready": "True", "Degraded": None, "Driver": "580.159.04"},
            {"CUDA": "13.0", "Complete": "True"},
        ),
        (
            pool(),
            {"Phase": "Ready", "Mode": "Exclusive", "Total": 32, "Used": 20, "Available": 10, "Faulted": 1, "Nodes": 4},
            {"Reserved": 1, "Resource": "gpu.deckhouse.io/training"},
        ),
    ],
    ids=["GPUDevice", "GPUNodeState", "GPUPool"],
)
async def test_columns_show_what_matters(
    client: Client, ask: Ask, thing: Object, always: dict[str, object], wide: dict[str, object]
) -> None:
    await present(client, thing)
    table = ask(thing.resource.path(name=thing.name), TABLE)
    await client.delete(type(thing), thing.name)
    (row,) = table["rows"]
    cells = [(column, cell) for column, cell in zip(table["columnDefinitions"], row["cells"], strict=True)]
    shown = {column["name"]: cell for column, cell in cells if not column["priority"]}
    hidden = {column["name"]: cell for column, cell in cells if column["priority"]}
    assert shown.pop("Name") == thing.name
    assert shown.pop("Age")
    assert (shown, hidden) == (always, wide)


@pytest.mark.parametrize(
    ("kind", "selector", "expected"),
    [
        (GPUDevice, "spec.nodeName=worker-3", {"worker-3-0000-18-00-0", "worker-3-0000-2a-00-0"}),
        (GPUDevice, "spec.nodeName=worker-3,spec.pciAddress=0000:2a:00.0", {"worker-3-0000-2a-00-0"}),
        (GPUDevice, "status.state=Unassigned", {"worker-4-0000-18-00-0"}),
        (GPUDevice, "status.poolRef.name=training", {"worker-3-0000-18-00-0", "worker-3-0000-2a-00-0"}),
        (GPUDevice, "status.poolRef.name=", {"worker-4-0000-18-00-0"}),
        (GPUNodeState, "metadata.name=worker-3", {"worker-3"}),
        (GPUNodeState, "status.driver.version=580.159.04", {"worker-3", "worker-4"}),
        (GPUPool, "status.phase=Ready", {"training"}),
        (GPUPool, "spec.allocation.mode=MIG", set()),
        (GPUPool, "spec.backend=DevicePlugin", {"training"}),
    ],
)
async def test_field_selectors_find_objects(
    client: Client, kind: type[Object], selector: str, expected: set[str]
) -> None:
    things: list[Object] = [
        *(device("worker-3", index) for index in range(2)),
        device("worker-4", 0, pool=None),
        node_state("worker-3"),
        node_state("worker-4"),
        pool(),
    ]
    chosen = [thing for thing in things if isinstance(thing, kind)]
    for thing in chosen:
        await present(client, thing)
    # Other tests may have left objects behind: only these count.
    found = {item.name for item in await client.list(kind, Selection(fields=selector))}
    found &= {thing.name for thing in chosen}
    for thing in chosen:
        await client.delete(kind, thing.name)
    assert found == expected


async def test_a_card_is_found_by_its_uuid(client: Client) -> None:
    card = device()
    await present(client, card)
    assert card.status.hardware is not None
    found = await client.list(GPUDevice, Selection(fields=f"status.hardware.uuid={card.status.hardware.uuid}"))
    await client.delete(GPUDevice, card.name)
    assert [item.name for item in found] == [card.name]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)
def test_explain_has_a_sentence_for_every_field(ask: Ask, definition: Definition) -> None:
    def silent() -> list[list[str]]:
        """The fields without one, of each schema of the kind."""
        schemas = ask(f"/openapi/v3{GROUP_PATH}").get("components", {}).get("schemas", {})
        found = [one for name, one in schemas.items() if name.endswith(f".{definition.resource.kind}")]
        return [
            [path for path, field in [("", schema), *_fields(schema, "")] if not field.get("description")]
            for schema in found
        ]

    nothing: list[list[str]] = [[]]
    assert in_time(silent, nothing) == nothing


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        if path or name in {"spec", "status"}:
            yield f"{path}.{name}", field
            yield from _fields(field, f"{path}.{name}")
    if "items" in schema:
        yield from _fields(schema["items"], f"{path}[]")
