"""How many GPUs a container has: by pools, by KubeRay's rule, by NVIDIA's other names, by claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.rules.ray.gpus import LivePools, PoolFacts, PoolResources, claim_templates
from unit.ray.ray_clusters import Json, gpu_pool, pools

MIXED = {"mode": "MIG", "mig": {"layout": [{"profile": "3g.71gb", "count": 1}, {"profile": "1g.18gb+me", "count": 1}]}}
POOLS = pools(
    gpu_pool("whole"),
    gpu_pool("named", resource={"name": "cards.example.com/training"}),
    gpu_pool("single", allocation={"mode": "MIG", "mig": {"profile": "1g.18gb"}}),
    gpu_pool("mixed", allocation=MIXED),
    gpu_pool("slices", allocation={"mode": "TimeSlice", "timeSlice": {"replicas": 4}}),
    gpu_pool("vendor", resource={"name": "nvidia.com/gpu.h200"}),
)
UNITS: dict[str, tuple[Json, int]] = {
    "whole cards": ({"gpu.deckhouse.io/whole": "2"}, 2),
    "a name of the pool's own": ({"cards.example.com/training": 3}, 3),
    "instances of one profile": ({"gpu.deckhouse.io/single": "4"}, 4),
    "instances of several profiles add up": (
        {"gpu.deckhouse.io/mixed.3g.71gb": "1", "gpu.deckhouse.io/mixed.1g.18gb.me": "2"},
        3,
    ),
    "what the resources of a mixed layout begin with is none of them": ({"gpu.deckhouse.io/mixed": "1"}, 0),
    "a turn": ({"gpu.deckhouse.io/slices": "1"}, 1),
    "several turns, which may be of one card": ({"gpu.deckhouse.io/slices": "3"}, 1),
    "turns beside whole cards": ({"gpu.deckhouse.io/whole": "2", "gpu.deckhouse.io/slices": "3"}, 3),
    "several pools add up": ({"gpu.deckhouse.io/whole": "2", "gpu.deckhouse.io/slices": "1"}, 3),
    "pools come before other names": ({"amd.com/gpu": "4", "gpu.deckhouse.io/whole": "2"}, 2),
    "a pool of which nothing is asked does not": ({"amd.com/gpu": "4", "gpu.deckhouse.io/whole": "0"}, 4),
    "a name that KubeRay would not know": ({"nvidia.com/gpu.h200": "2"}, 2),
    "a prefix is not enough": ({"gpu.deckhouse.io/nobody": "1"}, 0),
    "KubeRay's names: the first by name": ({"nvidia.com/gpu": "3", "amd.com/gpu": "1"}, 1),
    "that is not zero": ({"nvidia.com/gpu": "3", "amd.com/gpu": "0"}, 3),
    "KubeRay's names: instances": ({"nvidia.com/mig-1g.10gb": "2"}, 2),
    "KubeRay's names come first": ({"nvidia.com/gpu": "1", "aaa.com/x": "1", "nvidia.com/gpu.shared": "8"}, 1),
    "shares of cards": ({"nvidia.com/gpu.shared": "2"}, 2),
    "shares of instances": ({"nvidia.com/mig-1g.10gb.shared": "2"}, 2),
    "compute instances": ({"nvidia.com/mig-1c.2g.20gb": "1"}, 1),
    "instances with media": ({"nvidia.com/mig-1g.10gb.me": "1"}, 1),
    "instances with graphics": ({"nvidia.com/mig-1g.24gb.gfx": "1"}, 1),
    "no GPU": ({"cpu": "8", "memory": "1Gi", "nvidia.com/mig": "1", "rdma/shared": "1"}, 0),
    "nothing": ({}, 0),
    "what is no quantity": ({"nvidia.com/gpu": "many"}, 0),
    "what is too large to be one": ({"nvidia.com/gpu": "1e99999"}, 2**63 - 1),
    "what is less than none": ({"nvidia.com/gpu": "-1"}, 0),
}


@pytest.mark.parametrize(("limits", "units"), UNITS.values(), ids=UNITS.keys())
def test_a_container_has_gpus(limits: Json, units: int) -> None:
    assert POOLS.units(limits) == units


def test_what_a_container_asks_of_each_pool() -> None:
    asked: Json = {
        "gpu.deckhouse.io/mixed.3g.71gb": 1,
        "gpu.deckhouse.io/mixed.1g.18gb.me": 2,
        "gpu.deckhouse.io/whole": "4",
    }
    assert POOLS.pools_of({**asked, "nvidia.com/gpu": 1}) == {"mixed": 3, "whole": 4}


def test_of_pools_with_one_resource_the_older_has_it() -> None:
    older = PoolFacts(name="z", resources=("a.example.com/gpu",), age=(1.0, "z"))
    younger = PoolFacts(name="a", resources=("a.example.com/gpu",), age=(2.0, "a"))
    for order in ([older, younger], [younger, older]):
        assert PoolResources(order).pools_of({"a.example.com/gpu": 1}) == {"z": 1}


CLAIMS: Json = {
    "one": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
    "four": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 4}}]}},
    "older": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "mig.nvidia.com", "count": 2}]}},
    "choice": {
        "devices": {
            "requests": [
                {
                    "name": "gpu",
                    "firstAvailable": [
                        {"name": "large", "deviceClassName": "gpu.nvidia.com", "count": 2},
                        {"name": "small", "deviceClassName": "gpu.nvidia.com", "count": 8},
                    ],
                }
            ]
        }
    },
    "network": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}}]}},
    "both": {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 3}},
                {"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}},
            ]
        }
    },
    "all": {
        "devices": {
            "requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}]
        }
    },
}


def pod(*containers: Json, **claims: str) -> Json:
    """A pod's spec with claims by the names of their templates."""
    held = [{"name": name, "resourceClaimTemplateName": template} for name, template in claims.items()]
    return {"containers": [{"resources": container} for container in containers], "resourceClaims": held}


@pytest.mark.parametrize(
    ("template", "request_name", "gpus"),
    [
        ("one", "", 1),
        ("four", "", 4),
        ("older", "", 2),
        ("choice", "", 2),
        ("choice", "gpu/large", 2),
        ("network", "", 0),
        ("both", "", 3),
        ("both", "nic", 0),
        ("both", "gpu", 3),
        ("all", "", 0),
        ("unknown", "", 0),
    ],
)
def test_a_claim_counts_the_devices_of_gpu_classes(template: str, request_name: str, gpus: int) -> None:
    claim = {"name": "held", **({"request": request_name} if request_name else {})}
    spec = pod({"claims": [claim]}, held=template)
    assert POOLS.container_gpus(spec["containers"][0], spec, CLAIMS) == gpus


def test_a_pod_says_which_templates_have_to_be_known() -> None:
    spec = pod({"claims": [{"name": "a"}]}, a="one", b="four")
    spec["resourceClaims"].append({"name": "c", "resourceClaimName": "there-already"})
    assert claim_templates(spec) == {"one", "four"}


def test_claims_and_limits_add_up() -> None:
    spec = pod({"limits": {"gpu.deckhouse.io/whole": 1}, "claims": [{"name": "held"}]}, held="four")
    assert POOLS.container_gpus(spec["containers"][0], spec, CLAIMS) == 5


def test_a_claim_that_containers_share_counts_once_for_the_pod() -> None:
    spec = pod({"claims": [{"name": "held"}]}, {"claims": [{"name": "held", "request": "gpu"}]}, held="four")
    assert POOLS.pod_gpus(spec, CLAIMS) == 4


def test_a_pod_has_the_gpus_of_all_containers() -> None:
    spec = pod({"limits": {"gpu.deckhouse.io/whole": 1}}, {"limits": {"nvidia.com/gpu": 2}})
    assert POOLS.pod_gpus(spec) == 3


def test_live_pools_follow_their_cache_and_stay_the_same_otherwise() -> None:
    live = LivePools()
    assert live.current.units({"gpu.deckhouse.io/a": 1}) == 0
    live.changed(None, gpu_pool("a"))
    first = live.current
    assert first.units({"gpu.deckhouse.io/a": 1}) == 1
    live.changed(gpu_pool("a"), gpu_pool("a", status={"phase": "Ready"}))
    assert live.current is first
    live.changed(gpu_pool("a"), None)
    assert live.current.units({"gpu.deckhouse.io/a": 1}) == 0


@given(
    st.dictionaries(
        st.sampled_from(
            ["gpu.deckhouse.io/whole", "gpu.deckhouse.io/slices", "nvidia.com/gpu", "nvidia.com/gpu.shared", "cpu"]
        ),
        st.integers(0, 16),
    )
)
def test_gpus_of_pools_are_the_sum_and_never_less_than_none(limits: dict[str, int]) -> None:
    pooled = POOLS.pools_of(limits)
    assert POOLS.units(limits) >= 0
    if pooled:
        assert POOLS.units(limits) == pooled.get("whole", 0) + min(1, pooled.get("slices", 0))
