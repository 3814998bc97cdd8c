"""What becomes of a pod after its creation: no way to a card that creating it would not have been.

Most of this the API server refuses by itself; it is here because judging creations alone rests on it.
"""

import pytest

from integration.access.cases import POOLS, TRAINING, VARIABLE
from integration.access.env import AccessEnv, Answer, Manifest, container, pod

PODS = "/api/v1/namespaces/research/pods"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
LIMITS = {"limits": {TRAINING: "1"}, "requests": {TRAINING: "1"}}
ALL_CARDS = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


@pytest.fixture(scope="module")
def running(access: AccessEnv) -> AccessEnv:
    """Pods that are there: a plain one, and one that has had an annotation since before there was a policy."""
    access.pools(POOLS)
    old = pod() | {"metadata": {"name": "old", "annotations": {"cdi.k8s.io/a": "nvidia.com/gpu=0"}}}
    for body in (pod() | {"metadata": {"name": "new"}}, old):
        assert access.request("POST", PODS, body).admitted  # administrators may do everything
    return access


def change(env: AccessEnv, body: Manifest, path: str = "new", content_type: str = STRATEGIC) -> Answer:
    """A patch by a user."""
    who = [("Impersonate-User", "alice"), ("Impersonate-Group", "creators")]
    return env.request("PATCH", f"{PODS}/{path}?dryRun=All", body, headers=who, content_type=content_type)


@pytest.mark.parametrize(
    ("path", "spec", "sentence"),
    [
        (
            "new",
            {"containers": [{"name": "main", "resources": LIMITS}]},
            "pod updates may not change fields other than",
        ),
        ("new", {"runtimeClassName": "nvidia"}, "pod updates may not change fields other than"),
        ("new", {"containers": [{"name": "main", "env": ALL_CARDS}]}, "pod updates may not change fields other than"),
        ("new", {"containers": [container("more", {TRAINING: "1"})]}, "pod updates may not add or remove containers"),
        (
            "new/resize",
            {"containers": [{"name": "main", "resources": LIMITS}]},
            "only cpu and memory resources are mutable",
        ),
        (
            "new/ephemeralcontainers",
            {"ephemeralContainers": [container("debug", {TRAINING: "1"})]},
            "cannot be set for an Ephemeral Container",
        ),
    ],
    ids=["limits", "runtime-class", "variable", "container", "resize", "ephemeral-container"],
)
def test_the_api_server_itself_refuses(running: AccessEnv, path: str, spec: Manifest, sentence: str) -> None:
    answer = change(running, {"spec": spec}, path)
    assert answer.status == 422
    assert sentence in answer.message


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"containers": [{"name": "main", "image": "any", "resources": {"requests": {TRAINING: "1"}}}]},
            "Limit must be set for non overcommit",
        ),
        ({"containers": [container("main")], "resources": LIMITS}, 'supported values: "cpu", "hugepages-", "memory"'),
        ({"containers": [container("main", {TRAINING: "500m"})]}, "must be an integer"),
    ],
    ids=["requests-only", "pod-level", "fraction"],
)
def test_the_api_server_itself_refuses_to_create(running: AccessEnv, spec: Manifest, sentence: str) -> None:
    answer = running.create("research", {"metadata": {"name": "odd"}, "spec": spec})
    assert answer.status == 422
    assert sentence in answer.message


def test_an_ephemeral_container_is_judged(running: AccessEnv) -> None:
    ephemeral = container("debug", env=ALL_CARDS)
    del ephemeral["resources"]
    answer = change(running, {"spec": {"ephemeralContainers": [ephemeral]}}, "new/ephemeralcontainers")
    assert answer.sentence == VARIABLE.replace("main", "debug")
    harmless = {**ephemeral, "env": []}
    assert change(running, {"spec": {"ephemeralContainers": [harmless]}}, "new/ephemeralcontainers").admitted


def test_an_annotation_that_comes_later_is_judged(running: AccessEnv) -> None:
    answer = change(running, {"metadata": {"annotations": {"cdi.k8s.io/b": "nvidia.com/gpu=all"}}}, content_type=MERGE)
    assert answer.sentence.startswith("The annotation cdi.k8s.io/b gives the pod devices past every GPU pool.")


def test_a_pod_that_was_there_before_stays_usable(running: AccessEnv) -> None:
    assert change(running, {"metadata": {"labels": {"a": "b"}}}, "old", MERGE).admitted
    worse = {"metadata": {"annotations": {"cdi.k8s.io/a": "nvidia.com/gpu=all"}}}
    assert change(running, worse, "old", MERGE).status == 403
