"""The ResourceQuotas of a pool, and what its condition says about them."""

from typing import Any

import msgspec
import pytest

from gpu_control_plane.api import GPUPool
from gpu_control_plane.api.gpupool import PoolStatus
from gpu_control_plane.api.names import Label
from gpu_control_plane.api.namespace import QuotaSpec, QuotaStatus, ResourceQuota
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.pools.quotas import desired_limits, is_applied, is_ours, owner, quota_condition
from unit.pools.model import NOW

_MIXED = {"mode": "MIG", "mig": {"layout": [{"profile": "1g.18gb", "count": 4}, {"profile": "1g.18gb+me", "count": 1}]}}
_RESOURCE = "gpu.deckhouse.io/training"
_KEY = f"requests.{_RESOURCE}"


def pool(*quotas: dict[str, Any], **spec: Any) -> GPUPool:
    body = {"metadata": {"name": "training", "uid": "u-1"}, "spec": {"quotas": quotas, **spec}}
    return msgspec.convert(body, GPUPool)


def held(namespace: str, limit: int, used: int = 0, *, name: str = "gpu-pool-training") -> ResourceQuota:
    return ResourceQuota(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels={Label.POOL: "training"},
            owner_references=(owner(pool()),),
        ),
        spec=QuotaSpec(hard={_KEY: str(limit)}),
        status=QuotaStatus(used={_KEY: str(used)}),
    )


@pytest.mark.parametrize(
    ("made", "limits"),
    [
        (pool({"namespace": "a", "units": 4}), {_KEY: "4"}),
        (pool({"namespace": "a", "units": 0}), {_KEY: "0"}),
        (pool({"namespace": "other", "units": 4}), None),
        (pool(), None),
        (
            pool({"namespace": "a", "units": 4}, resource={"name": "gpu.example.com/big"}),
            {"requests.gpu.example.com/big": "4"},
        ),
        (
            pool({"namespace": "a", "units": 7}, allocation=_MIXED),
            {f"{_KEY}.1g.18gb": "7", f"{_KEY}.1g.18gb.me": "7"},
        ),
        (
            pool({"namespace": "a", "profiles": [{"profile": "1g.18gb.me", "units": 1}]}, allocation=_MIXED),
            {f"{_KEY}.1g.18gb.me": "1"},
        ),
        (
            pool({"namespace": "a", "units": 5, "profiles": [{"profile": "1g.18gb", "units": 2}]}, allocation=_MIXED),
            {f"{_KEY}.1g.18gb": "2", f"{_KEY}.1g.18gb.me": "5"},
        ),
    ],
    ids=["units", "none at all", "another namespace", "no quotas", "own name", "mixed", "one profile", "both"],
)
def test_the_limits_of_a_namespace(made: GPUPool, limits: dict[str, str] | None) -> None:
    assert desired_limits(made, "a") == limits


def test_what_others_add_to_our_quota_is_a_difference() -> None:
    quota = held("a", 4)
    assert is_applied(pool(), quota, {_KEY: "4"})
    widened = msgspec.structs.replace(quota, spec=QuotaSpec(hard={_KEY: "4", "pods": "3"}))
    assert not is_applied(pool(), widened, {_KEY: "4"})
    assert not is_applied(pool(), msgspec.structs.replace(quota, metadata=ObjectMeta(name=quota.name)), {_KEY: "4"})


def test_an_object_with_our_label_and_another_name_is_not_ours() -> None:
    assert is_ours(held("a", 4))
    assert not is_ours(held("a", 4, name="mine"))


_ASKED = pool({"namespace": "a", "units": 4}, {"namespace": "b", "units": 4})


@pytest.mark.parametrize(
    ("quotas", "namespaces", "said"),
    [
        ([held("a", 4, 4), held("b", 4)], ["a", "b"], ("True", "QuotasHold", "")),
        (
            [held("a", 4)],
            ["a"],
            ("True", "NamespaceNotFound", "b does not exist: its limit holds from the moment it is created"),
        ),
        (
            [held("a", 4)],
            ["a", "b"],
            (
                "False",
                "QuotaNotWritten",
                "b has no ResourceQuota gpu-pool-training of ours yet; if another object has that name, rename it",
            ),
        ),
        (
            [held("a", 2, 3), held("b", 4)],
            ["a", "b"],
            (
                "True",
                "OverQuota",
                f"a holds 3 of 2 {_RESOURCE}: these pods go on, and new ones are refused until it holds less",
            ),
        ),
    ],
    ids=["all hold", "no such namespace", "not written", "lowered below use"],
)
def test_the_condition_says_which_limit_does_not_hold(
    quotas: list[ResourceQuota], namespaces: list[str], said: tuple[str, str, str]
) -> None:
    found = quota_condition(_ASKED, quotas, namespaces, NOW)
    assert found is not None
    assert (found.status, found.reason, found.message) == said


def test_a_pool_without_quotas_has_no_condition_about_them() -> None:
    assert quota_condition(pool(), [], ["a"], NOW) is None


def test_a_pool_whose_quotas_were_removed_no_longer_says_that_one_is_exceeded() -> None:
    exceeded = quota_condition(_ASKED, [held("a", 2, 3), held("b", 4)], ["a", "b"], NOW)
    assert exceeded is not None
    before = pool()
    found = quota_condition(msgspec.structs.replace(before, status=PoolStatus(conditions=(exceeded,))), [], [], NOW)
    assert found is not None
    assert (found.status, found.reason, found.message) == ("True", "QuotasHold", "")
