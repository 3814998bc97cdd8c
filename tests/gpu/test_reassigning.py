"""A card moves from one pool to another, as a person says, and pods of the other one compute on it."""

from blocking_wait import until
from e2e.agent.agent_env import PREFIX
from gpu.card_env import RESOURCE, CardEnv
from gpu.record import Record

_SERVING = "serving"
_SERVER = "server"


def test_a_card_moves_to_another_pool_and_computes_there(pooled: CardEnv, record: Record) -> None:
    pooled.make_pool(_SERVING)
    with record.timed("card moved to another pool, offered there"):
        pooled.take_back()
        pooled.approve(_SERVING)
        pooled.wait_offered(f"{PREFIX}/{_SERVING}", 1)
    assert pooled.allocatable(RESOURCE) == 0
    pooled.create_worker(_SERVER, f"{PREFIX}/{_SERVING}")
    until(lambda: "working" in pooled.printed(_SERVER), within=60)
    pooled.cluster_env.delete_pod(_SERVER)
    pooled.take_back()
    pooled.approve()
    pooled.wait_offered(RESOURCE, 1)
