"""RayClusters on a real API server, with pod life simulated."""

import math
from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

from fault_proxy import Fault, Request
from gpu_control_plane.api.ray.names import HEAD_GROUP, Annotation, Label
from gpu_control_plane.kube import Object
from gpu_control_plane.kube.errors import NotFound
from gpu_control_plane.kube.objects import Resource
from gpu_control_plane.ray.cluster.claims import ResourceClaimTemplate
from gpu_control_plane.ray.owned import (
    OwnedClaim,
    OwnedIngress,
    OwnedRole,
    OwnedRoleBinding,
    OwnedSecret,
    OwnedService,
    OwnedServiceAccount,
    RayPod,
)
from integration.ray.ray_env import RayEnv, ResourceQuota
from unit.ray.ray_clusters import group, template
from waiting import until, until_async


class WholePod(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")
    spec: dict[str, Any] = {}


async def test_a_cluster_comes_up_with_one_creation_for_each_object(ray: RayEnv) -> None:
    await ray.create(group(replicas=2))
    cluster = await ray.ready()
    assert cluster.status.desired_worker_replicas == 2
    assert cluster.status.ready_worker_replicas == 2
    assert cluster.status.head is not None
    assert cluster.status.head.service_name == "rc-head-svc"
    assert cluster.status.endpoints["dashboard"] == "8265"
    assert await ray.says("HeadPodReady", "True")
    assert await ray.says("RayClusterProvisioned", "True")
    await ray.quiet()
    writes = ray.writes
    assert writes.count("POST pods") == 3
    assert writes.count("POST services") == 1
    statuses = writes.count("PATCH rayclusters/rc/status")
    assert statuses <= 4
    assert len(writes) == 4 + statuses


async def test_all_that_autoscaling_and_tokens_need_is_made_once(ray: RayEnv) -> None:
    await ray.create(
        group(), enableInTreeAutoscaling=True, authOptions={"mode": "token"}, rayVersion="2.55.0",
        head={"template": template(), "enableIngress": True},
    )  # fmt: skip
    await ray.ready()
    for kind in (OwnedServiceAccount, OwnedRole, OwnedRoleBinding, OwnedSecret):
        assert "rc" in await ray.objects(kind)
    assert "rc-head-ingress" in await ray.objects(OwnedIngress)
    await ray.quiet()
    count = len(ray.writes)
    await ray.client.patch(
        RayPod, (await ray.pods())[0].name, {"metadata": {"labels": {"x": "y"}}}, namespace=ray.namespace
    )
    await ray.quiet()
    assert len(ray.writes) == count


async def test_a_token_that_is_there_is_never_written_over(ray: RayEnv) -> None:
    """Pods have it in their environment. Without its label no cache shows it."""
    await ray.create(group(), authOptions={"mode": "token"}, rayVersion="2.55.0")
    await ray.ready()
    await ray.stop_operator()
    unlabelled = {"metadata": {"labels": {Label.CLUSTER.value: None}}}
    before = await ray.client.patch(OwnedSecret, "rc", unlabelled, namespace=ray.namespace)
    await ray.start_operator()
    await ray.change_groups(group(replicas=2))

    async def carried_out() -> bool:
        return len(await ray.pods()) == 3

    await until_async(carried_out, within=20)
    await ray.quiet()
    after = await ray.client.get(OwnedSecret, "rc", ray.namespace)
    assert after.metadata.resource_version == before.metadata.resource_version


async def test_what_is_not_asked_for_any_more_goes(ray: RayEnv) -> None:
    head = {"template": template(), "enableIngress": True}
    await ray.create(group(), head=head, enableInTreeAutoscaling=True)
    await ray.ready()
    await ray.change(headGroupSpec={"enableIngress": False}, enableInTreeAutoscaling=False)
    await until_async(lambda: _none(ray, OwnedIngress), within=10)
    # The head that runs has the autoscaler beside it, which ends where it may do nothing.
    assert "rc" in await ray.objects(OwnedRole)
    await ray.life.fail((await ray.pods(group=HEAD_GROUP))[0].name)
    await until_async(lambda: _none(ray, OwnedRole, OwnedRoleBinding), within=10)


async def _none(ray: RayEnv, *kinds: type[Object]) -> bool:
    return not any([await ray.objects(kind) for kind in kinds])


async def test_the_heads_service_follows_its_spec(ray: RayEnv) -> None:
    await ray.create()
    await ray.ready()
    assert (await ray.service("rc-head-svc")).spec["clusterIP"] == "None"
    # It gets an address, for which the API server wants another Service.
    await ray.change(headGroupSpec={"serviceType": "NodePort"}, headServiceAnnotations={"team": "a"})

    async def follows() -> bool:
        try:
            held = await ray.service("rc-head-svc")
        except NotFound:
            return False
        return held.spec["type"] == "NodePort" and held.metadata.annotations.get("team") == "a"

    await until_async(follows, within=10)


async def test_a_service_of_somebody_else_is_left_alone_and_named(ray: RayEnv) -> None:
    theirs = {"metadata": {"name": "rc-head-svc"}, "spec": {"ports": [{"port": 80}]}}
    await ray.client.create(OwnedService, theirs, ray.namespace)
    await ray.create()

    async def said() -> bool:
        return "rc-head-svc is needed" in (await ray.get()).status.reason

    await until_async(said, within=10)
    assert (await ray.service("rc-head-svc")).spec["ports"][0]["port"] == 80
    assert not await ray.pods()


async def test_pods_that_only_carry_our_labels_are_not_ours(ray: RayEnv) -> None:
    await ray.create(group())
    await ray.ready()
    model = (await ray.pods(group="workers"))[0]
    theirs = {
        "metadata": {"name": "theirs", "labels": model.metadata.labels},
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    }
    await ray.client.create(RayPod, theirs, ray.namespace)
    await ray.change_groups(group(replicas=0, scaleStrategy={"workersToDelete": ["theirs"]}))
    await until_async(lambda: _names(ray, "workers", {"theirs"}), within=10)
    await ray.ready()


async def _names(ray: RayEnv, of_group: str, expected: set[str]) -> bool:
    return {pod.name for pod in await ray.pods(group=of_group)} == expected


async def test_lost_pods_are_replaced(ray: RayEnv) -> None:
    await ray.create(group(replicas=2))
    await ray.ready()
    before = {pod.name for pod in await ray.pods()}
    head, worker = (await ray.pods(group=HEAD_GROUP))[0], (await ray.pods(group="workers"))[0]
    await ray.life.fail(worker.name, reason="Evicted", message="The node was low on memory.")
    await ray.life.fail(head.name)

    async def replaced() -> bool:
        now = {pod.name for pod in await ray.pods()}
        return len(now) == 3 and not {head.name, worker.name} & now

    await until_async(replaced, within=10)
    await ray.ready()
    assert len({pod.name for pod in await ray.pods()} & before) == 1
    await until_async(lambda: _event(ray, "DeletedWorkerPod", "low on memory"), within=5)


async def _event(ray: RayEnv, reason: str, part: str) -> bool:
    return part in (await ray.events()).get(reason, "")


async def test_a_lost_answer_makes_no_second_pod(ray: RayEnv) -> None:
    is_creation = lambda request: request.method == "POST" and request.path.endswith("/pods")  # noqa: E731
    ray.proxy.plant(Fault(when=is_creation, times=3, lose_answer=True))
    await ray.create(group(replicas=4))
    await ray.ready()
    await ray.quiet()
    assert len(await ray.pods()) == 5
    assert ray.writes.count("POST pods") == 5


async def test_a_new_leader_makes_no_pod_twice(ray: RayEnv) -> None:
    """The one before it ended after some of its creations, whose answers nobody got."""
    is_creation = lambda request: request.method == "POST" and request.path.endswith("/pods")  # noqa: E731
    ray.life.starts = lambda _pod: False
    fault = ray.proxy.plant(Fault(when=is_creation, times=2, lose_answer=True))
    await ray.create(group(replicas=6))
    await until(lambda: fault.spent, within=10)
    await ray.stop_operator()
    await ray.start_operator()
    ray.life.starts = lambda _pod: True
    ray.life.look_again()
    await ray.ready()
    assert len(await ray.pods()) == 7


async def test_the_operator_may_end_at_any_write(ray: RayEnv) -> None:
    """Its n-th write is carried out, it never learns of it, and writes nothing more."""
    for number in range(1, 7):
        name, death = f"rc-{number}", Death(number)
        ray.proxy.faults[:] = [
            Fault(when=death.is_last, lose_answer=True),
            Fault(when=death.is_later, times=math.inf, status=503),
        ]
        await ray.create(group(replicas=3), name=name)
        await until(lambda death=death: death.count >= death.last, within=10)  # type: ignore[misc]
        await ray.kill_operator()
        ray.proxy.faults.clear()
        await ray.start_operator()
        await ray.ready(name)
        assert len(await ray.pods(name)) == 4


class Death:
    """After so many writes, Events left out."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    def is_last(self, request: Request) -> bool:
        if not request.is_write or "/events" in request.path or self.count >= self.last:
            return False
        self.count += 1
        return self.count == self.last

    def is_later(self, request: Request) -> bool:
        return request.is_write and "/events" not in request.path and self.count >= self.last


async def test_a_quota_is_said_and_not_asked_again_and_again(ray: RayEnv) -> None:
    quota = {
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "2"}},
        "status": {"hard": {"pods": "2"}, "used": {"pods": "0"}},
    }
    await ray.client.create(ResourceQuota, quota, ray.namespace)
    await ray.client.patch(
        ResourceQuota, "few", {"status": quota["status"]}, namespace=ray.namespace, subresource="status"
    )
    await ray.create(group(replicas=50))
    await until_async(lambda: ray.says("ReplicaFailure", "True"), within=10)
    held = await ray.condition("ReplicaFailure")
    assert held is not None
    assert held.reason == "FailedCreateWorkerPod"
    assert "exceeded quota: few" in held.message
    assert "exceeded quota: few" in (await ray.get()).status.reason
    assert ray.writes.count("POST pods") < 10
    assert not await ray.says("WorkersReady", "True")
    # The change of the spec is tried at once, and clears the condition.
    await ray.change_groups(group(replicas=1))
    await ray.ready()
    assert await ray.condition("ReplicaFailure") is None


async def test_suspending_takes_all_pods_and_leaving_it_out_brings_them_back(ray: RayEnv) -> None:
    await ray.create(group(replicas=2))
    await ray.ready()
    await ray.change(suspend=True)
    await until_async(lambda: ray.says("RayClusterSuspended", "True"), within=10)
    cluster = await ray.get()
    assert cluster.status.state == "suspended"
    assert not await ray.pods()
    assert await ray.says("RayClusterSuspending", "False")
    await ray.change(suspend=None)
    await ray.ready()
    assert await ray.says("RayClusterSuspended", "False")


async def test_a_suspension_that_is_taken_back_midway_is_carried_to_its_end(ray: RayEnv) -> None:
    await ray.create(group())
    await ray.ready()
    before = {pod.name for pod in await ray.pods()}
    ray.life.may_go = lambda _pod: False
    await ray.change(suspend=True)
    await until_async(lambda: ray.says("RayClusterSuspending", "True"), within=10)
    await ray.change(suspend=False)
    ray.life.may_go = lambda _pod: True
    ray.life.look_again()
    await ray.ready()
    assert not {pod.name for pod in await ray.pods()} & before


async def test_cards_are_let_go_although_something_beside_the_pods_cannot_be_made(ray: RayEnv) -> None:
    backend = {"service": {"name": "theirs", "port": {"number": 80}}}
    theirs = {"metadata": {"name": "rc-head-ingress"}, "spec": {"defaultBackend": backend}}
    await ray.client.create(OwnedIngress, theirs, ray.namespace)
    await ray.create(group())
    await ray.ready()
    await ray.change(headGroupSpec={"enableIngress": True}, suspend=True)
    await until_async(lambda: ray.says("RayClusterSuspended", "True"), within=10)
    assert not await ray.pods()


async def test_a_volume_that_is_to_be_kept_from_now_on_is(ray: RayEnv) -> None:
    storage = {"backend": "rocksdb", "storage": {"deletionPolicy": "DeleteWithCluster"}}
    await ray.create(gcsFaultToleranceOptions=storage)
    await ray.ready()
    assert (await ray.objects(OwnedClaim))["rc-gcs-pvc"].metadata.owner_references
    await ray.change(gcsFaultToleranceOptions={"storage": {"size": "2Gi"}})
    await until_async(lambda: _event(ray, "PVCDiffers", "it asks for 1Gi, and the spec for 2Gi"), within=10)
    await ray.change(gcsFaultToleranceOptions={"storage": {"deletionPolicy": "Retain"}})

    async def kept() -> bool:
        return not (await ray.objects(OwnedClaim))["rc-gcs-pvc"].metadata.owner_references

    await until_async(kept, within=10)
    await ray.quiet()
    count = len(ray.writes)
    await ray.client.patch(
        RayPod, (await ray.pods())[0].name, {"metadata": {"labels": {"x": "y"}}}, namespace=ray.namespace
    )
    await ray.quiet()
    assert len(ray.writes) == count


async def test_a_volume_that_was_kept_and_is_deleted_is_made_again(ray: RayEnv) -> None:
    await ray.create(gcsFaultToleranceOptions={"backend": "rocksdb", "storage": {"deletionPolicy": "Retain"}})
    await ray.ready()
    await ray.quiet()
    before = (await ray.objects(OwnedClaim))["rc-gcs-pvc"]
    assert not before.metadata.owner_references
    await ray.client.delete(OwnedClaim, before.name, ray.namespace)
    unprotected = {"metadata": {"finalizers": None}}
    with suppress(NotFound):
        await ray.client.patch(OwnedClaim, before.name, unprotected, namespace=ray.namespace)

    async def another() -> bool:
        claim = (await ray.objects(OwnedClaim)).get("rc-gcs-pvc")
        return claim is not None and claim.metadata.uid != before.metadata.uid

    await until_async(another, within=10)


async def test_a_secret_of_somebody_else_is_named_and_not_used(ray: RayEnv) -> None:
    await ray.client.create(OwnedSecret, {"metadata": {"name": "rc"}}, ray.namespace)
    await ray.create(authOptions={"mode": "token"}, rayVersion="2.55.0")

    async def said() -> bool:
        return "Secret rc is needed" in (await ray.get()).status.reason

    await until_async(said, within=10)
    assert not await ray.pods()
    await ray.client.delete(OwnedSecret, "rc", ray.namespace)
    await ray.ready()


async def test_a_heads_service_with_other_labels_is_written_once(ray: RayEnv) -> None:
    labels = {"app.kubernetes.io/created-by": "me"}
    await ray.create(head={"template": {**template(), "metadata": {"labels": labels}}})
    cluster = await ray.ready()
    assert cluster.status.head is not None
    assert cluster.status.head.service_name == "rc-head-svc"
    await ray.quiet()
    assert [write for write in ray.writes if "services" in write] == ["POST services"]


async def test_cards_by_claim_are_counted_as_soon_as_the_template_is_there(ray: RayEnv) -> None:
    claims = template()
    claims["spec"]["resourceClaims"] = [{"name": "cards", "resourceClaimTemplateName": "four"}]
    claims["spec"]["containers"][0]["resources"] = {"claims": [{"name": "cards"}]}
    await ray.create(group("claimed", claims), group("plain"))
    await until_async(lambda: _said(ray, "the ResourceClaimTemplate four does not exist"), within=10)
    await until_async(lambda: _pods_by_group(ray, {"plain": 1, HEAD_GROUP: 1}), within=10)
    asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 4}}
    body = {"metadata": {"name": "four"}, "spec": {"spec": {"devices": {"requests": [asked]}}}}
    await ray.client.create(ResourceClaimTemplate, body, ray.namespace)
    cluster = await ray.ready()
    assert cluster.status.desired_gpu == "4"
    name = (await ray.pods(group="claimed"))[0].name
    command = (await ray.client.get(WholePod, name, ray.namespace)).spec["containers"][0]["args"][0]
    assert " --num-gpus=4 " in command


async def _said(ray: RayEnv, part: str) -> bool:
    held = await ray.condition("WorkersReady")
    return held is not None and part in held.message


async def _pods_by_group(ray: RayEnv, expected: dict[str, int]) -> bool:
    return Counter(pod.group for pod in await ray.pods()) == expected


async def test_a_suspended_group_has_no_pods(ray: RayEnv) -> None:
    await ray.create(group("a"), group("b"))
    await ray.ready()
    await ray.change_groups(group("a", suspend=True), group("b"))
    await until_async(lambda: _names(ray, "a", set()), within=10)
    await ray.ready()
    await ray.change_groups(group("a"), group("b"))
    await ray.ready()
    assert len(await ray.pods(group="a")) == 1


async def test_recreate_makes_all_pods_anew(ray: RayEnv) -> None:
    await ray.create(group(), upgradeStrategy={"type": "Recreate"})
    await ray.ready()
    before = {pod.name for pod in await ray.pods()}
    await ray.change_groups(group(template=template(image="new")))

    async def anew() -> bool:
        now = {pod.name for pod in await ray.pods()}
        return len(now) == 2 and not now & before

    await until_async(anew, within=15)
    await ray.ready()


async def test_a_rolling_change_replaces_one_worker_after_the_other(ray: RayEnv) -> None:
    await ray.create(group(replicas=3), upgradeStrategy={"type": "RollingUpdate"})
    await ray.ready()
    before = {pod.name for pod in await ray.pods(group="workers")}
    head = (await ray.pods(group=HEAD_GROUP))[0].name
    fewest = 3
    await ray.change_groups(group(replicas=3, template=template(image="new")))

    async def done() -> bool:
        nonlocal fewest
        pods = await ray.pods(group="workers")
        fewest = min(fewest, sum(pod.ready for pod in pods))
        return len(pods) == 3 and not {pod.name for pod in pods} & before

    await until_async(done, within=20)
    await ray.ready()
    assert fewest >= 2
    assert (await ray.pods(group=HEAD_GROUP))[0].name == head
    assert {pod.spec.containers[0].image for pod in await ray.pods(group="workers")} == {"new"}


async def test_an_invalid_spec_is_said_and_heals(ray: RayEnv) -> None:
    await ray.create(group(minReplicas=5, maxReplicas=2))
    await until_async(lambda: ray.says("Valid", "False"), within=10)
    cluster = await ray.get()
    assert cluster.status.reason
    assert cluster.status.observed_generation == cluster.metadata.generation
    assert not await ray.pods()
    await until_async(lambda: _event(ray, "InvalidRayClusterSpec", ""), within=5)
    await ray.change_groups(group(minReplicas=1, maxReplicas=2))
    await ray.ready()
    assert await ray.says("Valid", "True")


async def test_a_cluster_of_multikueue_is_left_alone(ray: RayEnv) -> None:
    await ray.create(group(), managedBy="kueue.x-k8s.io/multikueue")
    await ray.quiet()
    assert not ray.writes


async def test_deleting_a_cluster_needs_nothing_of_us(ray: RayEnv) -> None:
    await ray.create(group())
    cluster = await ray.ready()
    await ray.quiet()
    count = len(ray.writes)
    await ray.client.delete(type(cluster), "rc", ray.namespace)
    await ray.quiet()
    assert len(ray.writes) == count


async def test_a_cluster_of_the_same_name_is_another_one(ray: RayEnv) -> None:
    """Without a garbage collector the pods of the first are still there: they are not taken for ours."""
    first = await ray.create(group())
    await ray.ready()
    held = {pod.name for pod in await ray.pods()}
    await ray.client.delete(type(first), "rc", ray.namespace)
    await ray.client.delete(OwnedService, "rc-head-svc", ray.namespace)
    await ray.create(group())
    await until_async(ray.is_ready, within=15)
    assert {pod.name for pod in await ray.pods()} >= held
    assert len(await ray.pods()) == 4


async def test_a_serve_service_is_made_where_an_annotation_asks_for_it(ray: RayEnv) -> None:
    await ray.create(annotations={Annotation.ENABLE_SERVE_SERVICE: "true"})
    await ray.ready()
    assert "rc-serve-svc" in await ray.objects(OwnedService)
