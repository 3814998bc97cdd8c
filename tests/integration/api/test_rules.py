"""The rules of the API hold in a real API server, and its answers tell people what to do."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpu_control_plane.api import DEFINITIONS, GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.examples import device, manifest, node_state, pool
from gpu_control_plane.kube import Client, FieldManager, Object
from gpu_control_plane.kube.errors import Invalid
from integration.api.rows import REFUSED, REFUSED_UPDATES, TAKEN, Row

MANAGER = FieldManager("tests")


@pytest.mark.parametrize("row", TAKEN, ids=str)
async def test_a_good_object_is_taken_and_read_back(client: Client, row: Row) -> None:
    made = await client.create(row.kind, row.body)
    await client.delete(row.kind, made.name)
    assert made.name == row.body["metadata"]["name"]


@pytest.mark.parametrize("row", REFUSED, ids=str)
async def test_a_bad_object_is_refused_with_advice(client: Client, row: Row) -> None:
    assert row.says is not None
    with pytest.raises(Invalid) as refusal:
        await client.create(row.kind, row.body)
    assert row.says in refusal.value.message


@pytest.mark.parametrize("row", REFUSED_UPDATES, ids=str)
async def test_a_card_stays_where_it_is(client: Client, row: Row) -> None:
    name = device().name
    await client.apply(row.kind, name, {"spec": manifest(device())["spec"]}, manager=MANAGER)
    with pytest.raises(Invalid) as refusal:
        await client.patch(row.kind, name, {"spec": row.body["spec"]})
    await client.delete(row.kind, name)
    assert row.says is not None
    assert row.says in refusal.value.message


async def test_a_card_on_a_node_with_a_name_too_long_for_both_may_have_a_shortened_name(client: Client) -> None:
    made = await client.create(GPUDevice, manifest(device(node="n" * 253)))
    await client.delete(GPUDevice, made.name)
    assert len(made.name) == 253


def test_every_rule_has_a_row_that_breaks_it() -> None:
    expected = [row.says for row in (*REFUSED, *REFUSED_UPDATES) if row.says]
    untested = [
        f"{definition.resource.kind}: {message}"
        for definition in DEFINITIONS
        for message in _messages(definition.schema())
        if not any(words in message for words in expected)
    ]
    assert untested == []


async def test_what_people_leave_out_is_filled_in(client: Client) -> None:
    made = await client.create(GPUPool, {"metadata": {"name": "defaults"}, "spec": {}})
    raw = await client.get(_Raw, "defaults")
    await client.delete(GPUPool, "defaults")
    assert raw.spec == {
        "allocation": {"mode": "Exclusive"},
        "assignment": {"requireAnnotation": True},
        "backend": "DevicePlugin",
        "maintenance": {"strategy": "Pool", "deadline": "24h"},
        "scheduling": {"strategy": "BinPack", "reservationTTL": "5m", "numa": "Preferred"},
    }
    assert made.spec == GPUPool(spec=type(made.spec)()).spec


async def test_defaults_reach_into_parts_that_are_given(client: Client) -> None:
    body = {"metadata": {"name": "partly"}, "spec": {"assignment": {}, "scheduling": {"strategy": "Spread"}}}
    await client.create(GPUPool, body)
    raw = await client.get(_Raw, "partly")
    await client.delete(GPUPool, "partly")
    assert raw.spec["assignment"] == {"requireAnnotation": True}
    assert raw.spec["scheduling"] == {"strategy": "Spread", "reservationTTL": "5m", "numa": "Preferred"}


@pytest.mark.parametrize("thing", [device(), node_state(), pool()], ids=lambda thing: thing.resource.kind)
async def test_status_is_written_through_its_own_door_only(client: Client, thing: Object) -> None:
    body = manifest(thing)
    made = await client.create(type(thing), body)
    written = await client.apply(
        type(thing), thing.name, {"status": body["status"]}, manager=MANAGER, subresource="status"
    )
    await client.delete(type(thing), thing.name)
    assert _status(made) == _status(type(thing)(**_spec_only(thing)))
    assert _status(written) == _status(thing)


async def test_writers_of_one_status_do_not_disturb_each_other(client: Client) -> None:
    card = device()
    await client.create(GPUDevice, {**manifest(card), "status": {}})
    status = manifest(card)["status"]
    for fields in (("hardware",), ("state", "poolRef", "history"), ("usedBy", "telemetry", "conditions")):
        share = {"status": {field: status[field] for field in fields}}
        await client.apply(
            GPUDevice, card.name, share, manager=FieldManager(fields[0]), subresource="status", force=False
        )
    seen = await client.get(GPUDevice, card.name)
    await client.delete(GPUDevice, card.name)
    assert seen.status == card.status


class _Raw(Object, frozen=True):
    resource = GPUPool.resource

    spec: dict[str, Any]


def _spec_only(thing: Object) -> dict[str, Any]:
    assert isinstance(thing, GPUDevice | GPUNodeState | GPUPool)
    return {"spec": thing.spec}


def _status(thing: Object) -> object:
    assert isinstance(thing, GPUDevice | GPUNodeState | GPUPool)
    return thing.status


def _messages(schema: dict[str, Any]) -> Iterator[str]:
    yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
    for field in schema.get("properties", {}).values():
        yield from _messages(field)
    if "items" in schema:
        yield from _messages(schema["items"])
