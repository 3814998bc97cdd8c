"""What stands in the index of access, line by line, and what happens when not everything fits."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.rules.access_index import access_index, entry, index_key, pool_in, resource_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def pool(name: str, *, age: int = 0, **spec: Any) -> GPUPool:
    metadata = {"name": name, "creationTimestamp": BEGIN - timedelta(days=age)}
    return msgspec.convert({"metadata": metadata, "spec": spec}, GPUPool)


@pytest.mark.parametrize(
    ("access", "text"),
    [
        (None, "pool a\n\n"),
        ({}, "pool a\n\n"),
        ({"namespaces": ["two", "one"]}, "pool a\n\nnamespace one\nnamespace two\n"),
        ({"serviceAccounts": [{"namespace": "one", "name": "b"}]}, "pool a\n\naccount one/b\n"),
        ({"users": ["alice"], "groups": ["ml"]}, "pool a\n\nuser alice\ngroup ml\n"),
        ({"users": ["x\nnamespace y", "c\\d"]}, "pool a\n\nuser c\\\\d\nuser x\\nnamespace y\n"),
        ({"namespaceSelector": {}}, "pool a\nselector Every\n\n"),
        (
            {"namespaceSelector": {"matchLabels": {"team": "ml", "tier": ""}}},
            "pool a\nselector In team ml\nselector In tier \n\n",
        ),
        (
            {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "team", "operator": "NotIn", "values": ["a", "b"]},
                        {"key": "tier", "operator": "Exists"},
                        {"key": "tier", "operator": "Later", "values": ["a"]},
                    ]
                },
                "namespaces": ["one"],
            },
            "pool a\nselector NotIn team a,b\nselector Exists tier \nselector Never\n\nnamespace one\n",
        ),
        (
            {"namespaceSelector": {"matchLabels": {"a b": "c,d\n"}}},
            "pool a\nselector In a%20b c%2cd%a\n\n",
        ),
    ],
)
def test_an_entry_says_whom_the_pool_admits(access: dict[str, Any] | None, text: str) -> None:
    assert entry(pool("a", access=access)) == text


def test_every_resource_of_a_mixed_layout_has_an_entry() -> None:
    layout = [{"profile": "1g.10gb", "count": 2}, {"profile": "1g.10gb+me", "count": 1}]
    index = access_index([pool("a", allocation={"mode": "MIG", "mig": {"layout": layout}})])
    assert list(index.data) == ["gpu.deckhouse.io_a.1g.10gb", "gpu.deckhouse.io_a.1g.10gb.me"]


def test_of_two_pools_with_one_resource_the_older_has_it() -> None:
    shared: dict[str, Any] = {"resource": {"name": "example.com/gpu"}}
    young = pool("a", access={"namespaces": ["young"]}, **shared)
    old = pool("b", age=1, access={"namespaces": ["old"]}, **shared)
    assert access_index([young, old]).data == {"example.com_gpu": entry(old)}


def test_a_resource_that_no_pool_has_any_more_stays_closed() -> None:
    index = access_index([pool("a")], {"example.com/old": "a", "gpu.deckhouse.io/a": "z"})
    assert index.data == {"example.com_old": "pool a\n\n", "gpu.deckhouse.io_a": "pool a\n\n"}


@given(st.from_regex(r"[a-z0-9]{1,9}(\.[a-z]{1,3}){0,2}/[A-Za-z0-9][-A-Za-z0-9_.]{0,9}[a-z]", fullmatch=True))
def test_a_key_names_one_resource(resource: str) -> None:
    assert resource_of(index_key(resource)) == resource


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(300, 3000))
def test_what_does_not_fit_is_closed_and_named_and_the_oldest_fits_first(sizes: list[int], limit: int) -> None:
    pools = [
        pool(f"p{number:02}", age=number, access={"namespaces": [f"team-{each}" for each in range(size)]})
        for number, size in enumerate(sizes)
    ]
    index = access_index(pools, limit=limit)
    assert {pool_in(text) for text in index.data.values()} == {each.name for each in pools}
    full = {each.name: entry(each) for each in pools}
    for key, text in index.data.items():
        name = key.rpartition("_")[2]
        assert text == (f"pool {name}\n\n" if name in index.overfull else full[name])
    least = sum(len(key) + len(f"pool {key[-3:]}\n\n") for key in index.data)
    assert sum(len(key) + len(text) for key, text in index.data.items()) <= max(limit, least)
    if not index.overfull:
        return
    oldest = pools[-1]
    others = least - len(index_key(oldest.resource_name)) - len(f"pool {oldest.name}\n\n")
    fits = others + len(index_key(oldest.resource_name)) + len(full[oldest.name]) <= limit
    assert fits is (oldest.name not in index.overfull)
