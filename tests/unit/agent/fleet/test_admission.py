"""Which pods start, with which cards."""

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.agent.fleet.admission import Admission, admit
from gpu_control_plane.agent.fleet.placement import Grant, Need, Shortage, Spot, choose, place
from gpu_control_plane.agent.fleet.pods import allocated, is_extended, needs
from gpu_control_plane.agent.views import Container, NodeStatus, Pod, PodCondition, PodSpec, PodStatus, Resources
from gpu_control_plane.kube import ObjectMeta

NOW = datetime(2026, 3, 2, tzinfo=UTC)
TRAINING = "gpu.deckhouse.io/training"
SPOTS = tuple(Spot(f"0000:{index:02x}:00.0", f"card-{index}", index // 4) for index in range(8))


def container(name: str, cards: int = 1, *, resource: str = TRAINING, sidecar: bool = False) -> Container:
    limits = {resource: str(cards), "cpu": "1"}
    return Container(name=name, resources=Resources(limits), restart_policy="Always" if sidecar else "")


def pod(name: str, *containers: Container, first: tuple[Container, ...] = (), phase: str = "Pending") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="team", uid=name),
        spec=PodSpec(containers=containers or (container("main"),), init_containers=first),
        status=PodStatus(phase=phase),
    )


def after(given_pod: Pod, grants: tuple[Grant, ...]) -> Pod:
    """The pod with the answer written into it, as the API server would show it."""
    answer = msgspec.to_builtins(allocated(given_pod, grants, NOW))
    condition = msgspec.convert(answer["status"]["conditions"][0], PodCondition)
    return msgspec.structs.replace(given_pod, status=PodStatus("Running", (condition,)))


def decide(*pods: Pod, cards: int = 8, allocatable: str = "8") -> Admission:
    offered = {spot.card: TRAINING for spot in SPOTS[:cards]}
    status = NodeStatus(allocatable={"example.com/other": allocatable})
    return admit(pods, offered, SPOTS, served={TRAINING}, status=status)


def test_a_pod_gets_as_many_cards_as_it_asks_for() -> None:
    ((_, grants),) = decide(pod("one", container("main", 3))).outcomes
    assert grants == (Grant("main", TRAINING, ("card-0", "card-1", "card-2")),)


def test_a_pod_keeps_what_it_was_given_after_a_restart() -> None:
    first = decide(pod("one"))
    kept = decide(after(pod("one"), (Grant("main", TRAINING, ("card-5",)),)))
    assert kept.outcomes == ()
    assert list(kept.users) == ["card-5"]
    assert list(first.users) == ["card-0"]


def test_a_pod_for_which_no_card_is_left_fails_as_with_a_kubelet() -> None:
    decided = decide(pod("one"), pod("two"), cards=1)
    assert [type(outcome) for _, outcome in decided.outcomes] == [tuple, Shortage]
    assert [user.pod for users in decided.users.values() for user in users] == ["one"]


def test_a_pod_that_runs_already_is_never_failed() -> None:
    assert decide(pod("one", phase="Running"), cards=0).outcomes == ()


def test_a_pod_that_asks_for_no_device_is_not_touched() -> None:
    assert decide(pod("one", Container(name="main"))).outcomes == ()


def test_a_resource_of_another_plugin_is_its_own_affair() -> None:
    other = pod("one", container("main", resource="example.com/other"))
    ((_, outcome),) = decide(other).outcomes
    assert outcome == ()
    ((_, outcome),) = decide(other, allocatable="0").outcomes
    assert isinstance(outcome, Shortage)


def test_init_containers_use_the_cards_of_the_others() -> None:
    starter = container("load", 3)
    assert needs(pod("one", container("main", 2), first=(starter,))) == (
        Need("main", TRAINING, 2),
        Need("load", TRAINING, 1),
    )
    assert needs(pod("one", container("main", 3), first=(starter,))) == (Need("main", TRAINING, 3),)


def test_sidecars_hold_cards_of_their_own() -> None:
    asked = needs(pod("one", container("main"), first=(container("proxy", sidecar=True),)))
    assert asked == (Need("proxy", TRAINING, 1), Need("main", TRAINING, 1))


def test_only_names_with_a_domain_of_their_own_are_devices() -> None:
    names = {"cpu": False, "hugepages-2Mi": False, TRAINING: True, "a.kubernetes.io/b": False, "kubernetes.io/b": False}
    assert {name: is_extended(name) for name in names} == names


def test_few_cards_are_taken_where_few_are_left() -> None:
    assert [spot.card for spot in choose(1, SPOTS[2:])] == ["card-2"]
    assert [spot.card for spot in choose(4, SPOTS[2:])] == ["card-4", "card-5", "card-6", "card-7"]
    assert len(choose(6, SPOTS)) == 6


@given(st.lists(st.integers(1, 4), max_size=6), st.integers(0, 8))
def test_no_card_is_given_twice_and_a_pod_gets_all_or_nothing(counts: list[int], cards: int) -> None:
    pods = [pod(f"pod-{number}", container("main", count)) for number, count in enumerate(counts)]
    decided = decide(*pods, cards=cards)
    given_out = [
        card for _, outcome in decided.outcomes if not isinstance(outcome, Shortage) for card in outcome[0].cards
    ]
    assert len(given_out) == len(set(given_out)) == len(decided.users)
    assert len(decided.outcomes) == len(pods)
    for (asked, outcome), count in zip(decided.outcomes, counts, strict=True):
        assert isinstance(outcome, Shortage) or len(outcome[0].cards) == count, asked


def test_a_shortage_says_what_was_wanted_and_what_there_is() -> None:
    short = place([Need("main", TRAINING, 3)], {TRAINING: SPOTS[:1]})
    assert str(short).startswith(f"the pod was bound here for 3 of {TRAINING}, but 1 can be handed out")
