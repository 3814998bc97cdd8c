"""Ray clusters beside the cards that their pods hold."""

import msgspec

from gpu_control_plane.api.pod import WaitingPod
from gpu_control_plane.api.ray.names import NodeType
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.ray.names import pod_prefix
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.ray import job_rows, ray_rows, service_rows
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


def test_pods_of_a_cluster_with_a_long_name_are_its_own() -> None:
    """RayServices make clusters of up to 53 characters, and pods have at most 50 of them."""
    name = f"{'recommendations-of-the-evening-' * 2}"[:47] + "-x1y2z"
    pod = pod_prefix(name, "gpu", NodeType.WORKER) + "abcde"
    held = card(slot=1, pods=(f"team-a/{pod}",), utilisation=90)
    (row,) = ray_rows(Fleet(cards={held.name: held}), [_cluster(name)])
    assert row.cards == (held.name,)


def test_a_cluster_without_a_state_is_starting() -> None:
    (row,) = ray_rows(Fleet(), [_cluster("eval", desiredGPU="8", desiredWorkerReplicas=2)])
    assert (row.state, row.gpus_wanted, row.workers, row.workers_wanted) == ("starting", 8, 0, 2)


def _job(**status: object) -> RayJobView:
    return msgspec.convert({"metadata": {"name": "train", "namespace": "team-a"}, "status": status}, RayJobView)


def _service(**status: object) -> RayServiceView:
    return msgspec.convert({"metadata": {"name": "chat", "namespace": "team-a"}, "status": status}, RayServiceView)


def _condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    since = "2026-03-02T12:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def test_a_cluster_says_what_it_waits_for_and_which_command_says_more() -> None:
    small = _condition("CapacitySufficient", "False", "PoolTooSmall", "training has 7 cards")
    (row,) = ray_rows(Fleet(), [_cluster("eval", conditions=[small])])
    assert row.why == "PoolTooSmall: training has 7 cards"
    assert row.next == "kubectl -n team-a describe raycluster eval"
    waiting = msgspec.convert({"metadata": {"name": "eval-gpu-worker-x", "namespace": "team-a"}}, WaitingPod)
    (row,) = ray_rows(Fleet(waiting=(waiting,)), [_cluster("eval")])
    assert row.why == "1 pod waits for cards"
    assert row.next == "kubectl gpu explain pod eval-gpu-worker-x -n team-a"


def test_a_job_shows_the_cards_of_its_cluster_and_why_it_waits() -> None:
    held = card(slot=1, pods=("team-a/eval-worker-1",), utilisation=90)
    clusters = ray_rows(Fleet(cards={held.name: held}), [_cluster("eval")])
    (row,) = job_rows([_job(jobDeploymentStatus="Running", jobStatus="RUNNING", rayClusterName="eval")], clusters)
    assert (row.state, row.cards, row.why, row.next) == ("Running", 1, "", "")
    (failed,) = job_rows([_job(jobDeploymentStatus="Failed", reason="AppFailed", message="exit 1")], clusters)
    assert (failed.state, failed.why) == ("Failed", "AppFailed: exit 1")
    assert failed.next == "kubectl -n team-a describe rayjob train"


def test_a_service_is_ready_upgrading_suspended_or_not_ready() -> None:
    ready, unready = _condition("Ready", "True"), _condition("Ready", "False", "ZeroServeEndpoints", "no pod")
    states = {
        "Ready": [ready],
        "Upgrading": [ready, _condition("UpgradeInProgress", "True")],
        "NotReady": [unready],
        "Suspended": [unready, _condition("Suspended", "True")],
    }
    for state, conditions in states.items():
        (row,) = service_rows([_service(conditions=conditions)], ())
        assert row.state == state
        assert row.why == ("ZeroServeEndpoints: no pod" if state == "NotReady" else "")
