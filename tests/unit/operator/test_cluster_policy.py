"""Which ClusterPolicy is active, and why one cannot be carried out."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube.client import decoder
from gpu_control_plane.operator.cluster_policy import contradiction, oldest_policy, parse_policy, uses_driver_crd
from unit.api.nvidia.stock import stock_policy

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def policy(name: str, born: str | None = OLD, *, deleting: bool = False, spec: Any = None) -> StoredClusterPolicy:
    metadata = {"name": name, "creationTimestamp": born, **({"deletionTimestamp": NEW} if deleting else {})}
    body = {"metadata": metadata, "spec": stock_policy()["spec"] if spec is None else spec}
    return decoder(StoredClusterPolicy).decode(msgspec.json.encode(body))


def spec(**sections: Any) -> ClusterPolicySpec:
    stock = stock_policy()["spec"]
    return msgspec.convert(
        stock | {name: stock.get(name, {}) | held for name, held in sections.items()}, ClusterPolicySpec
    )


@pytest.mark.parametrize(
    ("policies", "wins"),
    [
        ((), None),
        ((policy("a"),), "a"),
        ((policy("a", NEW), policy("z", OLD)), "z"),
        ((policy("b"), policy("a")), "a"),
        ((policy("a", deleting=True), policy("b", NEW)), "b"),
        ((policy("a", deleting=True),), None),
        # An older one that cannot be read is active all the same: its status says so, and no other replaces it.
        ((policy("a", OLD, spec={"driver": 5}), policy("b", NEW)), "a"),
    ],
)
def test_the_oldest_is_active_then_the_first_by_name(policies: tuple[StoredClusterPolicy, ...], wins: str) -> None:
    for order in (policies, policies[::-1]):
        found = oldest_policy(order)
        assert (found.name if found else None) == wins


def test_a_policy_that_can_be_read_has_a_spec_and_no_problem() -> None:
    found = parse_policy(policy("a"))
    assert found.spec is not None
    assert not found.problem


def test_a_policy_that_cannot_be_read_says_where_and_has_no_spec() -> None:
    broken = stock_policy()["spec"] | {"driver": {"enabled": "perhaps"}}
    found = parse_policy(policy("a", spec=broken))
    assert found.spec is None
    assert "driver.enabled" in found.problem


@pytest.mark.parametrize(
    ("sections", "word"),
    [
        ({}, ""),
        ({"cdi": {"enabled": False}}, ""),
        ({"cdi": {"nriPluginEnabled": True}}, ""),
        ({"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": None}}, ""),
        ({"cdi": {"enabled": False, "nriPluginEnabled": True}}, "cdi.enabled"),
        ({"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": False}}, "toolkit.enabled"),
    ],
)
def test_settings_that_exclude_each_other_are_named(sections: dict[str, Any], word: str) -> None:
    found = contradiction(spec(**sections))
    assert word in found
    assert bool(found) is bool(word)


def test_drivers_come_from_nvidiadrivers_unless_a_policy_says_otherwise() -> None:
    assert uses_driver_crd(None)
    assert uses_driver_crd(spec(driver={"useNvidiaDriverCRD": True}))
    assert not uses_driver_crd(spec())
