"""The types read what the API server sends and write what it takes."""

from datetime import timedelta

import msgspec
import pytest
from msgspec import inspect as shape

from gpu_control_plane.api import DEFINITIONS, GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.allocation import (
    MIG,
    Allocation,
    Mode,
    PoolAllocation,
    canonical_profile,
    resource_suffix,
)
from gpu_control_plane.api.deviceselector import compute_capability
from gpu_control_plane.api.examples import device, manifest, mixed_layout, node_state, pool
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.gpupool import PoolResource, PoolSpec
from gpu_control_plane.api.scheduling import Scheduling
from gpu_control_plane.api.shapes import Part, wire_name
from gpu_control_plane.kube.objects import Object

KINDS = [definition.kind for definition in DEFINITIONS]


@pytest.mark.parametrize("thing", [device(), node_state(), pool()], ids=lambda thing: thing.resource.kind)
def test_what_is_written_is_read_back_the_same(thing: Object) -> None:
    assert msgspec.json.decode(msgspec.json.encode(manifest(thing)), type=type(thing)) == thing


@pytest.mark.parametrize(
    ("attribute", "wire"),
    [
        ("memory_mib", "memoryMiB"),
        ("inventory_id", "inventoryID"),
        ("inventory_ids", "inventoryIDs"),
        ("used_by", "usedBy"),
        ("last_xid", "lastXid"),
        ("reservation_ttl", "reservationTTL"),
        ("uuid", "uuid"),
        ("class_", "class"),
        ("nvlink_peers", "nvlinkPeers"),
    ],
)
def test_fields_are_spelt_as_in_yaml(attribute: str, wire: str) -> None:
    assert wire_name(attribute) == wire


@pytest.mark.parametrize("kind", KINDS)
def test_objects_stay_out_of_the_garbage_collectors_way_and_cannot_change(kind: type[Object]) -> None:
    configs = {struct.__name__: struct.__struct_config__ for struct in _structs(kind)}
    assert [name for name, config in configs.items() if not config.frozen or config.gc] == []


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_in_a_status_stand_for_absence(kind: type[Object]) -> None:
    status = next(field for field in msgspec.structs.fields(kind) if field.name == "status")
    for struct in _structs(type(status.default)):
        if not issubclass(struct, Part):
            continue
        for field in msgspec.structs.fields(struct):
            assert field.required or field.default in (None, ()), f"{struct.__name__}.{field.name}"


def test_an_object_of_a_later_release_can_be_read() -> None:
    later = b'{"metadata":{"name":"a"},"spec":{"nodeName":"a","pciAddress":"b","new":1},"status":{"state":"Retiring"}}'
    card = msgspec.json.decode(later, type=GPUDevice)
    assert card.status.state == "Retiring"
    assert card.status.state not in set(DeviceState)


def test_a_fresh_object_needs_no_status() -> None:
    assert msgspec.json.decode(b'{"metadata":{"name":"worker-3"}}', type=GPUNodeState).spec.assignments == ()


def test_the_example_card_is_about_as_large_as_a_real_one() -> None:
    assert 1400 <= len(msgspec.json.encode(manifest(device()))) <= 2000


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (PoolSpec(), ("gpu.deckhouse.io/training",)),
        (PoolSpec(resource=PoolResource(name="nvidia.com/gpu")), ("nvidia.com/gpu",)),
        (
            PoolSpec(allocation=PoolAllocation(mode=Mode.MIG, mig=MIG(profile="1g.18gb+me"))),
            ("gpu.deckhouse.io/training",),
        ),
        (mixed_layout(), ("gpu.example.com/notebooks.3g.71gb", "gpu.example.com/notebooks.1g.18gb")),
    ],
)
def test_a_pool_knows_the_resources_it_offers(spec: PoolSpec, names: tuple[str, ...]) -> None:
    assert pool(spec=spec).resource_names == names


@pytest.mark.parametrize(
    ("written", "driver", "suffix"),
    [
        ("1g.18gb", "1g.18gb", "1g.18gb"),
        ("1g.18gb+me", "1g.18gb+me", "1g.18gb.me"),
        ("1g.18gb.me", "1g.18gb+me", "1g.18gb.me"),
        ("1g.24gb+me.all", "1g.24gb+me.all", "1g.24gb.me.all"),
        ("1g.24gb.gfx", "1g.24gb+gfx", "1g.24gb.gfx"),
        ("2g.48gb-me", "2g.48gb-me", "2g.48gb-me"),
    ],
)
def test_profiles_have_two_spellings(written: str, driver: str, suffix: str) -> None:
    assert canonical_profile(written) == driver
    assert resource_suffix(written) == suffix


def test_a_node_is_told_the_mode_in_so_many_words() -> None:
    assert msgspec.to_builtins(Allocation(mode=Mode.EXCLUSIVE)) == {"mode": "Exclusive"}


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("5m", 300), ("1h30m", 5400), ("1m30s", 90)])
def test_a_reservation_lasts_as_long_as_written(text: str, seconds: int) -> None:
    assert Scheduling(reservation_ttl=text).reservation_time == timedelta(seconds=seconds)


def test_compute_capabilities_compare_as_numbers() -> None:
    assert compute_capability("8.6") < compute_capability("9.0") < compute_capability("10.0")


def test_a_pool_without_words_is_a_pool_of_whole_cards_that_a_person_approves() -> None:
    spec = msgspec.json.decode(b'{"spec":{}}', type=GPUPool).spec
    assert (spec.allocation.mode, spec.assignment.require_annotation, spec.access) == (Mode.EXCLUSIVE, True, None)


def _structs(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """A struct and every struct inside it."""
    found: dict[type[msgspec.Struct], None] = {}

    def visit(node: shape.Type) -> None:
        match node:
            case shape.StructType(cls=cls, fields=fields) if cls not in found:
                found[cls] = None
                for field in fields:
                    visit(field.type)
            case shape.Metadata(type=inner):
                visit(inner)
            case shape.UnionType(types=members):
                for member in members:
                    visit(member)
            case shape.VarTupleType(item_type=item):
                visit(item)

    visit(shape.type_info(kind))
    return list(found)
