"""Cards are partitioned as ordered, around what is in use, and only when there is something to do."""

from gpu_control_plane.agent.backends.interface import BackendError
from gpu_control_plane.agent.step import NodePlan
from gpu_control_plane.agent.step.partitioning import RETRY_SECONDS
from gpu_control_plane.api.gpunodestate import OrderProblem, ProblemReason
from unit.agent.step.builders import RESOURCE, exclusive, partitioned, profile_order
from unit.agent.step.node_model import NodeModel


def instances(node: NodeModel) -> list[tuple[str, int]]:
    address = node.hardware.observed[node.cards[0]].address
    return [(each.profile, each.start) for each in node.backend.instances(address)]


def problem_of(plan: NodePlan) -> OrderProblem:
    assert plan.plugin is not None
    (problem,) = plan.plugin.problems
    return problem


def seven(node: NodeModel) -> None:
    """Seven instances are ordered, made and advertised."""
    node.order(profile_order(node.cards[0], "1g.18gb"))
    node.step()


def two(node: NodeModel) -> None:
    node.order(partitioned(node.cards[0], **{"3g_71gb": 2}))


def test_a_card_is_partitioned_once_and_left_alone_afterwards() -> None:
    node = NodeModel()
    seven(node)
    assert instances(node) == [("1g.18gb", start) for start in range(7)]
    assert len(node.free) == 7
    node.step()
    made = node.partitions
    node.settle()
    assert node.partitions == made


def test_instances_in_use_stay_and_the_reason_is_reported() -> None:
    node = NodeModel()
    seven(node)
    node.allocate(*node.free[0], "trainer")
    two(node)
    plan = node.settle()
    assert instances(node) == [("1g.18gb", 0), ("3g.71gb", 4)]
    assert problem_of(plan).reason is ProblemReason.WAITING
    assert "team/trainer" in problem_of(plan).message
    node.end_pod("trainer")
    plan = node.settle()
    assert instances(node) == [("3g.71gb", 0), ("3g.71gb", 4)]
    assert plan.plugin is not None
    assert plan.plugin.problems == ()


def test_a_message_is_never_longer_than_the_api_takes() -> None:
    node = NodeModel()
    seven(node)
    for number, free in enumerate(node.free):
        node.allocate(*free, f"{number}{'p' * 252}")
    two(node)
    problem = problem_of(node.settle())
    assert problem.reason is ProblemReason.WAITING
    assert len(problem.message) == 1024


def test_what_the_kubelet_may_still_allocate_is_not_touched() -> None:
    node = NodeModel()
    seven(node)
    two(node)
    plan = node.step()
    assert len(instances(node)) == 7
    assert problem_of(plan).reason is ProblemReason.WAITING
    assert not plan.allocatable.units, "none of the seven is given to a pod any more"


def test_a_card_is_not_partitioned_while_a_pod_has_it_whole() -> None:
    node = NodeModel()
    node.order(exclusive(node.cards[0]))
    node.step()
    node.allocate(*node.free[0], "trainer")
    node.order(profile_order(node.cards[0], "1g.18gb"))
    plan = node.settle()
    assert instances(node) == []
    assert "team/trainer" in problem_of(plan).message


def test_an_impossible_layout_is_reported_at_once_and_not_tried_again() -> None:
    node = NodeModel()
    node.order(profile_order(node.cards[0], "9g.999gb"))
    plan = node.step()
    assert problem_of(plan).reason is ProblemReason.MISCONFIGURED
    assert "1g.18gb" in problem_of(plan).message
    assert plan.look_again is None
    tried = node.partitions
    node.settle()
    assert node.partitions == tried


def test_a_failed_attempt_is_repeated_later_and_not_before() -> None:
    def fail_once(attempt: int) -> None:
        if attempt <= 1:
            raise BackendError("The driver did not like it.")

    node = NodeModel(before_create=fail_once)
    two(node)
    plan = node.step()
    assert (problem_of(plan).reason, plan.look_again) == (ProblemReason.FAILED, RETRY_SECONDS)
    tried = node.partitions
    node.step()
    assert node.partitions == tried
    node.pass_time(RETRY_SECONDS)
    node.step()
    assert instances(node) == [("3g.71gb", 0), ("3g.71gb", 4)]
    assert {resource for resource, _ in node.free} == {f"{RESOURCE}.3g.71gb"}


def test_a_card_becomes_whole_again_once_its_instances_are_unused() -> None:
    node = NodeModel()
    seven(node)
    node.allocate(*node.free[3], "trainer")
    node.order(exclusive(node.cards[0]))
    node.settle()
    assert len(instances(node)) == 1
    assert node.free == []
    node.end_pod("trainer")
    node.settle()
    assert instances(node) == []
    assert [resource for resource, _ in node.free] == [RESOURCE]
