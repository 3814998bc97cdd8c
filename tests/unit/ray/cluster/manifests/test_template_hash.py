"""Which changes of a spec are a change for pods, for a group, or for a whole cluster."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.ray.cluster import RayCluster
from gpu_control_plane.ray.cluster.manifests import ClusterContext, head_pod, recreate_hash, spec_hash, template_hash
from gpu_control_plane.ray.options import RayOptions
from unit.ray.ray_clusters import Json, gpu_pool, group, head_of, pools, ray_cluster, template, worker_of

BOTH = {"head", "worker"}


def whole() -> Json:
    """A RayCluster as a document, with a head and two groups."""
    held = template({"cpu": 1, "memory": "2Gi", "gpu.deckhouse.io/a": 1}, env=[{"name": "A", "value": "1"}])
    workers = group("workers", held, rayStartParams={"object-store-memory": "100"}, minReplicas=1, maxReplicas=3)
    cluster = ray_cluster(workers, group("others"), rayVersion="2.52.0")
    document: Json = msgspec.json.decode(msgspec.json.encode(cluster))
    return document


def hashes(document: Json) -> dict[str, str]:
    """Of the head's pod and of a worker of the first group."""
    cluster = msgspec.convert(document, RayCluster)
    return {"head": template_hash(cluster), "worker": template_hash(cluster, cluster.spec.worker_group_specs[0])}


def changed(document: Json, path: str, value: Any) -> Json:
    """The document with another value at a path; None takes the value away."""
    found = copy.deepcopy(document)
    *parents, last = path.split(".")
    part: Any = found
    for name in parents:
        part = part[int(name)] if isinstance(part, list) else part.setdefault(name, {})
    if value is None:
        del part[last]
    elif isinstance(part, list):
        part[int(last)] = value
    else:
        part[last] = value
    return found


WORKER, RAY = "spec.workerGroupSpecs.0", "spec.workerGroupSpecs.0.template.spec.containers.0"
HEAD_RAY = "spec.headGroupSpec.template.spec.containers.0"
CHANGES: list[tuple[str, Any, set[str]]] = [
    # What a group's own pods are made from.
    (f"{RAY}.image", "rayproject/ray:2.60.0", {"worker"}),
    (f"{RAY}.env", [{"name": "A", "value": "2"}], {"worker"}),
    (f"{RAY}.resources.limits.cpu", "2", {"worker"}),
    (f"{RAY}.resources.limits", {"cpu": 1, "memory": "2Gi"}, {"worker"}),
    (f"{WORKER}.rayStartParams", {"object-store-memory": "200"}, {"worker"}),
    (f"{WORKER}.resources", {"GPU": "2"}, {"worker"}),
    (f"{WORKER}.labels", {"zone": "a"}, {"worker"}),
    (f"{WORKER}.template.metadata", {"labels": {"a": "b"}}, {"worker"}),
    (f"{WORKER}.template.spec.tolerations", [{"operator": "Exists"}], {"worker"}),
    (f"{WORKER}.template.spec.automountServiceAccountToken", False, {"worker"}),
    (f"{WORKER}.template.spec.terminationGracePeriodSeconds", 0, {"worker"}),
    (f"{WORKER}.numOfHosts", 2, {"worker"}),
    (f"{HEAD_RAY}.image", "rayproject/ray:2.60.0", {"head"}),
    ("spec.headGroupSpec.rayStartParams", {"dashboard-host": "127.0.0.1"}, {"head"}),
    ("spec.headGroupSpec.rayStartParams", {"port": "6380"}, BOTH),
    # What they are made from beside their group.
    ("spec.rayVersion", "2.60.0", BOTH),
    ("spec.rayVersion", "2.52.1", set()),
    ("metadata.annotations", {"ray.io/overwrite-container-cmd": "true"}, BOTH),
    ("metadata.annotations", {"ray.io/ft-enabled": "true"}, BOTH),
    ("metadata.annotations", {"note": "anything"}, set()),
    ("spec.authOptions", {"mode": "token"}, BOTH),
    ("spec.authOptions", {"mode": "disabled"}, set()),
    ("spec.tlsOptions", {"enabled": True}, BOTH),
    ("spec.tlsOptions", {"enabled": False}, set()),
    ("spec.enableInTreeAutoscaling", True, {"head"}),
    ("spec.enableInTreeAutoscaling", False, set()),
    ("spec.autoscalerOptions", {"image": "other"}, set()),
    ("spec.headGroupSpec.headService", {"metadata": {"name": "other"}}, BOTH),
    ("spec.headGroupSpec.headService", {"spec": {"type": "NodePort"}}, set()),
    # What pods are not made from.
    (f"{WORKER}.replicas", 7, set()),
    (f"{WORKER}.minReplicas", 0, set()),
    (f"{WORKER}.maxReplicas", 9, set()),
    (f"{WORKER}.suspend", True, set()),
    (f"{WORKER}.scaleStrategy", {"workersToDelete": ["a"]}, set()),
    (f"{WORKER}.idleTimeoutSeconds", 5, set()),
    (f"{WORKER}.template.spec.schedulingGates", [{"name": "kueue"}], set()),
    ("spec.suspend", True, set()),
    ("spec.upgradeStrategy", {"type": "RollingUpdate"}, set()),
    ("spec.headServiceAnnotations", {"a": "b"}, set()),
    ("spec.networkPolicy", {"mode": "DenyAll"}, set()),
    ("spec.workerGroupSpecs.1.template.spec.containers.0.image", "other", set()),
    # Another way to say the same.
    (f"{RAY}.resources.limits.cpu", "1000m", set()),
    (f"{RAY}.resources.limits.memory", 2 * 1024**3, set()),
    (f"{RAY}.resources.requests", {}, set()),
    (f"{RAY}.args", [], set()),
    (f"{WORKER}.template.metadata", {"creationTimestamp": None, "labels": {}, "annotations": {}}, set()),
    (f"{WORKER}.resources", {}, set()),
]


def _id(part: object) -> str:
    """The name of a case, which must be the same in each process."""
    return ",".join(sorted(part)) or "none" if isinstance(part, set) else str(part)[:60]


@pytest.mark.parametrize(("path", "value", "expected"), CHANGES, ids=_id)
def test_a_change_reaches_the_pods_that_are_made_from_it(path: str, value: Any, expected: set[str]) -> None:
    before = hashes(whole())
    after = hashes(changed(whole(), path, value))
    assert {pod for pod in before if before[pod] != after[pod]} == expected


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ({}, set()),
        ({"deletionPolicy": "Retain"}, set()),
        ({"size": "5Gi", "storageClassName": "fast", "accessModes": ["ReadWriteMany"]}, set()),
        ({"subPath": "gcs"}, {"head"}),
        ({"claimName": "mine"}, {"head"}),
    ],
    ids=_id,
)
def test_only_what_the_head_mounts_of_a_volume_reaches_it(storage: Json, expected: set[str]) -> None:
    on_volume = changed(whole(), "spec.gcsFaultToleranceOptions", {"backend": "rocksdb"})
    before = hashes(on_volume)
    after = hashes(changed(on_volume, "spec.gcsFaultToleranceOptions.storage", storage))
    assert {pod for pod in before if before[pod] != after[pod]} == expected


def test_a_release_keeps_the_hashes_of_another() -> None:
    """Another value here means that an upgrade of the operator makes every pod of Ray out of date, and clusters that
    roll begin to. Change it for nothing less than a fault."""
    assert hashes(whole()) == {
        "head": "0P76QQN662F7K54HTOV3NL2MEICL29CL",
        "worker": "C4768PN1IDTQ88ORTFU4FN1G7H4ED9VJ",
    }


def test_only_the_autoscaler_that_never_restarts_pods_reaches_workers() -> None:
    scaled = changed(whole(), "spec.enableInTreeAutoscaling", True)
    first, second = ({"version": version} for version in ("v1", "v2"))
    one, two = (hashes(changed(scaled, "spec.autoscalerOptions", options)) for options in (first, second))
    assert (one["worker"], one["head"]) == (hashes(scaled)["worker"], one["head"])
    assert two["worker"] != one["worker"]
    assert hashes(changed(scaled, "spec.autoscalerOptions", {"idleTimeoutSeconds": 5})) == hashes(scaled)


def test_neither_the_operator_nor_a_pool_makes_pods_out_of_date() -> None:
    cluster = msgspec.convert(whole(), RayCluster)
    plain = ClusterContext(cluster=cluster)
    other = ClusterContext(
        cluster=cluster,
        gpus=pools(gpu_pool("a")),
        options=RayOptions(
            version="another",
            login_shell=True,
            probes=False,
            init_container=False,
            cluster_domain="example.org",
            default_container_envs=({"name": "B", "value": "1"},),
            default_pod_labels={"a": "b"},
        ),
    )
    for make in (head_of, worker_of):
        one, two = (make(context)["metadata"]["annotations"] for context in (plain, other))
        assert one["gpu.deckhouse.io/template-hash"] == two["gpu.deckhouse.io/template-hash"]


KEYS = st.sampled_from(["a", "b", "labels", "limits", "spec", "env"])
DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)


def reordered(value: Any) -> Any:
    """The same document with the keys of all maps the other way round."""
    if isinstance(value, dict):
        return {key: reordered(part) for key, part in reversed(value.items())}
    return [reordered(part) for part in value] if isinstance(value, list) else value


@given(extra=st.dictionaries(KEYS, DOCUMENTS, max_size=4), replicas=st.integers(0, 9))
def test_neither_the_order_of_keys_nor_the_number_of_workers_counts(extra: Json, replicas: int) -> None:
    one = changed(whole(), f"{WORKER}.template.spec.more", extra)
    two = changed(reordered(one), f"{WORKER}.replicas", replicas)
    assert hashes(one) == hashes(two)


@given(one=DOCUMENTS, two=DOCUMENTS)
def test_text_and_numbers_that_differ_count(one: Any, two: Any) -> None:
    first, second = (changed(whole(), f"{RAY}.more", {"value": [str(part)]}) for part in (one, two))
    assert (hashes(first) == hashes(second)) == (str(one) == str(two))


RECREATED: list[tuple[str, Any, bool]] = [
    (f"{RAY}.image", "other", True),
    (f"{HEAD_RAY}.image", "other", True),
    ("spec.rayVersion", "2.60.0", True),
    (f"{WORKER}.replicas", 7, False),
    (f"{WORKER}.minReplicas", 0, False),
    (f"{WORKER}.maxReplicas", 9, False),
    (f"{WORKER}.scaleStrategy", {"workersToDelete": ["a"]}, False),
    (f"{WORKER}.template.spec.tolerations", [{"operator": "Exists"}], False),
    (f"{WORKER}.template.spec.schedulingGates", [{"name": "kueue"}], False),
    ("spec.headGroupSpec.template.spec.tolerations", [{"operator": "Exists"}], False),
    ("spec.upgradeStrategy", {"type": "Recreate"}, False),
]


@pytest.mark.parametrize(("path", "value", "differs"), RECREATED, ids=_id)
def test_a_cluster_is_another_one_by_kuberays_rule(path: str, value: Any, *, differs: bool) -> None:
    one, two = (msgspec.convert(each, RayCluster).spec for each in (whole(), changed(whole(), path, value)))
    assert (recreate_hash(one) != recreate_hash(two)) is differs
    assert (spec_hash(one) != spec_hash(two)) is differs


def test_a_suspended_cluster_of_a_service_is_the_same_one() -> None:
    one, two = (msgspec.convert(each, RayCluster).spec for each in (whole(), changed(whole(), "spec.suspend", True)))
    assert spec_hash(one) == spec_hash(two)
    assert recreate_hash(one) != recreate_hash(two)


def test_the_head_carries_the_hash_of_its_cluster() -> None:
    cluster = msgspec.convert(whole(), RayCluster)
    carried = head_pod(ClusterContext(cluster=cluster))["metadata"]["annotations"]
    assert carried["ray.io/upgrade-strategy-recreate-hash"] == recreate_hash(cluster.spec)
    assert set(recreate_hash(cluster.spec)) <= set("0123456789ABCDEFGHIJKLMNOPQRSTUV")
