"""A pool whose cards take turns: two pods compute on the same card at once, and a third waits."""

import json

from blocking_wait import until
from e2e.agent.agent_env import PREFIX
from gpu.card_env import RESOURCE, CardEnv
from gpu.record import Record
from gpu.smi import Smi

_SHARED = "shared"
_SHARED_RESOURCE = f"{PREFIX}/{_SHARED}"
_PODS = ["left", "right"]
_THIRD = "third"


def test_two_pods_share_the_card_and_both_compute(pooled: CardEnv, smi: Smi, record: Record) -> None:
    pooled.make_pool(_SHARED, allocation={"mode": "TimeSlice", "timeSlice": {"replicas": 2}})
    pooled.take_back()
    with record.timed("card offered in two time slices"):
        pooled.approve(_SHARED)
        pooled.wait_offered(_SHARED_RESOURCE, 2)
    for name in _PODS:
        pooled.create_worker(name, _SHARED_RESOURCE)
    until(lambda: all("working" in pooled.printed(name) for name in _PODS), within=60)
    for name in _PODS:
        answer = json.loads(pooled.printed(name).splitlines()[0])
        assert answer["ok"], answer
        assert answer["card"] == pooled.uuid_of_card
    until(lambda: sorted(pooled.users_of_card()) == _PODS)
    computing = smi.processes()
    record.measure("programs that compute on the shared card", len(computing), "")
    assert len(computing) >= len(_PODS)

    pooled.create_worker(_THIRD, _SHARED_RESOURCE)
    until(lambda: f"Insufficient {_SHARED_RESOURCE}" in json.dumps(pooled.cluster_env.pod(_THIRD)["status"]))

    pooled.cluster_env.kubectl("delete", "pods", "--all", "--wait")
    pooled.take_back()
    pooled.approve()
    pooled.wait_offered(RESOURCE, 1)
