"""Ray clusters beside the cards that their pods hold."""

import msgspec

from gpu_control_plane.api.ray.view import RayClusterView
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.ray import ray_rows
from unit.views.builders import card


def _cluster(name: str, **status: object) -> RayClusterView:
    return msgspec.convert({"metadata": {"name": name, "namespace": "team-a"}, "status": status}, RayClusterView)


def test_cards_belong_to_the_cluster_whose_pods_hold_them() -> None:
    held = [
        card(slot=1, pods=("team-a/eval-worker-1",), utilisation=90),
        card(slot=2, pods=("team-a/eval-worker-1",), utilisation=0),
        card(slot=3, pods=("team-a/eval-big-worker-1",), utilisation=90),
        card(slot=4, pods=("team-b/eval-worker-1",), utilisation=90),
    ]
    fleet = Fleet(cards={each.name: each for each in held})
    rows = {row.name: row for row in ray_rows(fleet, [_cluster("eval"), _cluster("eval-big")])}
    assert rows["eval"].cards == (held[0].name, held[1].name)
    assert rows["eval"].idle == 1
    assert rows["eval-big"].cards == (held[2].name,)


def test_a_cluster_without_a_state_is_starting() -> None:
    (row,) = ray_rows(Fleet(), [_cluster("eval", desiredGPU="8", desiredWorkerReplicas=2)])
    assert (row.state, row.gpus_wanted, row.workers, row.workers_wanted) == ("starting", 8, 0, 2)
