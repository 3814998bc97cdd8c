"""Histories of a RayCluster at random: pods fail, people change the spec, and the operator ends between any two writes.

What must hold whatever happens: at rest there are as many pods as are asked for and not one more, one head, and a
rolling change never takes more workers than it may.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpu_control_plane.api.ray.names import HEAD_GROUP
from gpu_control_plane.ray.cluster.pod_state import is_worker
from gpu_control_plane.ray.cluster.worker_groups import Why
from gpu_control_plane.ray.demand import group_pods
from unit.ray.cluster.pod_world import PodWorld, hashes
from unit.ray.ray_clusters import group, ray_cluster, template

NAMES = ("a", "b")


class Histories(RuleBasedStateMachine):
    """One cluster with up to two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PodWorld(ray_cluster())
        self.groups: dict[str, dict[str, Any]] = {}
        self.image = dict.fromkeys((*NAMES, HEAD_GROUP), "first")
        self.suspended = False
        self.most = 1

    @initialize(hosts=st.sampled_from([1, 1, 2]), replicas=st.integers(0, 4), most=st.integers(1, 2))
    def begin(self, hosts: int, replicas: int, most: int) -> None:
        self.most = most
        self.groups["a"] = {"replicas": replicas, "numOfHosts": hosts}
        self._write()

    def _write(self) -> None:
        groups = [group(name, template=template(image=self.image[name]), **each) for name, each in self.groups.items()]
        self.world.with_spec(
            ray_cluster(
                *groups,
                head={"template": template(image=self.image[HEAD_GROUP])},
                suspend=self.suspended,
                upgradeStrategy={"type": "RollingUpdate", "maxUnavailable": self.most},
            )
        )

    @rule(name=st.sampled_from(NAMES), replicas=st.integers(0, 4))
    def scale(self, name: str, replicas: int) -> None:
        self.groups.setdefault(name, {})["replicas"] = replicas
        self._write()

    @rule(name=st.sampled_from(NAMES))
    def remove_group(self, name: str) -> None:
        self.groups.pop(name, None)
        self._write()

    @rule(name=st.sampled_from((*NAMES, HEAD_GROUP)), image=st.sampled_from(["first", "second", "third"]))
    def change_image(self, name: str, image: str) -> None:
        self.image[name] = image
        self._write()

    @rule()
    def suspend(self) -> None:
        self.suspended = not self.suspended
        self._write()

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), what=st.sampled_from(["fails", "delete", "runs", "begins_to_go"]))
    def pod_event(self, data: st.DataObject, what: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.pods)))
        if not self.world.pods[name].deleting and not self.world.pods[name].ended:
            getattr(self.world, what)(name)

    @precondition(lambda self: any(pod.deleting for pod in self.world.pods.values()))
    @rule()
    def pods_have_gone(self) -> None:
        for name in [name for name, pod in self.world.pods.items() if pod.deleting]:
            self.world.delete(name)

    @rule(count=st.integers(0, 4))
    def operator_ends_after_writes(self, count: int) -> None:
        """It carries out a part of its plan; the next one begins with what there is."""
        for write in islice(self.world.writes(self.world.plan()), count):
            write()

    @rule()
    def rolling_takes_no_more_than_it_may(self) -> None:
        plan = self.world.plan()
        taken: dict[str, set[str]] = {}
        for removal in plan.removals:
            if removal.why is Why.OUTDATED and is_worker(removal.pod) and removal.pod.running:
                labels = removal.pod.metadata.labels
                replica = labels.get("ray.io/worker-group-replica-name") or removal.pod.name
                taken.setdefault(removal.pod.group, set()).add(replica)
        assert len(taken) <= 1
        assert all(len(replicas) <= self.most for replicas in taken.values())

    @rule()
    def comes_to_rest(self) -> None:
        self.pods_have_gone()
        self.world.settle(rounds=60)
        self._is_as_asked_for()

    def _is_as_asked_for(self) -> None:
        world = self.world
        if self.suspended:
            assert not world.pods
            return
        assert len(world.of(HEAD_GROUP)) == 1
        asked = {each.group_name: group_pods(each) for each in world.cluster.spec.worker_group_specs}
        assert {name: len(world.of(name)) for name in asked} == asked
        assert all(pod.group in {*asked, HEAD_GROUP} for pod in world.pods.values())
        # All of them are as the spec says.
        expected = hashes(world.cluster)
        held: Callable[[Any], str] = lambda pod: pod.metadata.annotations["gpu.deckhouse.io/template-hash"]  # noqa: E731
        assert all(held(pod) == expected[pod.group] for pod in world.pods.values())

    @invariant()
    def no_plan_asks_for_more_than_is_missing(self) -> None:
        plan = self.world.plan()
        for each in self.world.cluster.spec.worker_group_specs:
            removed = {removal.pod.name for removal in plan.removals}
            staying = [pod for pod in self.world.of(each.group_name) if pod.name not in removed and not pod.deleting]
            ordered = [order for order in plan.orders if order.group == each.group_name]
            outdated = sum(removal.why is Why.OUTDATED for removal in plan.removals)
            assert len(staying) + len(ordered) <= group_pods(each) or not ordered, (staying, ordered, outdated)


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase
