"""A pool that admits nobody says so, and what to write."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.pools.accessible import access_conditions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("access", "overfull", "status", "reason", "sentence"),
    [
        (
            None,
            False,
            "False",
            "NobodyAdmitted",
            "only those with the RBAC verb use on the pool can ask for gpu.deck",
        ),
        ({}, False, "False", "NobodyAdmitted", "Write spec.access, such as {namespaces: [team-a]}, or {namespaceSelec"),
        ({"namespaces": []}, False, "False", "NobodyAdmitted", "or {namespaceSelector: {}} for every namespace."),
        ({"namespaceSelector": {}}, False, "True", "AccessGranted", ""),
        ({"users": ["alice"]}, False, "True", "AccessGranted", ""),
        ({"users": ["alice"]}, True, "False", "AccessListTooLong", "Name namespaces by a label (access.namespaceSelec"),
    ],
)
def test_the_condition_says_whether_anybody_is_admitted(
    access: dict[str, Any] | None, overfull: bool, status: str, reason: str, sentence: str
) -> None:
    pool = msgspec.convert({"metadata": {"name": "a"}, "spec": {"access": access}}, GPUPool)
    found, _guarded = access_conditions(pool, overfull=overfull, guarded=True, now=NOW)
    assert (found.type, found.status, found.reason) == ("Accessible", status, reason)
    assert sentence in found.message


@pytest.mark.parametrize(
    ("guarded", "status", "reason", "sentence"),
    [
        (True, "True", "PolicyInForce", ""),
        (False, "False", "PolicyMissing", "every pod can ask for gpu.deckhouse.io/a"),
    ],
)
def test_a_pool_says_if_nothing_keeps_pods_out(guarded: bool, status: str, reason: str, sentence: str) -> None:
    pool = msgspec.convert({"metadata": {"name": "a"}, "spec": {}}, GPUPool)
    *_, found = access_conditions(pool, overfull=False, guarded=guarded, now=NOW)
    assert (found.type, found.status, found.reason) == ("Guarded", status, reason)
    assert sentence in found.message
