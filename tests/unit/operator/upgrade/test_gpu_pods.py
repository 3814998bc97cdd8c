"""Which pods use a GPU, which may be made to leave, and how selectors are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpu_control_plane.api.pod import Pod, PodSpec, ResourceClaim
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.operator.upgrade.gpu_pods import EvictionRules, eviction_problem, gpu_pods
from gpu_control_plane.operator.upgrade.selector import BadSelector, parse
from unit.operator.upgrade.builders import gpu_pod

STRICT = EvictionRules(force=False, delete_empty_dir=False)
LENIENT = EvictionRules(force=True, delete_empty_dir=True)


def initialised(pod: Pod) -> Pod:
    """The same pod with its requests in an init container."""
    return replace(pod, spec=replace(pod.spec, containers=(), init_containers=pod.spec.containers))


def mirror(pod: Pod) -> Pod:
    annotations = {"kubernetes.io/config.mirror": "x"}
    return replace(pod, metadata=ObjectMeta(name=pod.name, annotations=annotations))


@pytest.mark.parametrize(
    ("pod", "leaves"),
    [
        (gpu_pod(resource="nvidia.com/gpu"), True),
        (gpu_pod(resource="nvidia.com/gpu.shared"), True),
        (gpu_pod(resource="nvidia.com/mig-1g.10gb"), True),
        (gpu_pod(resource="gpu.deckhouse.io/training"), True),
        (gpu_pod(resource="example.com/my-pool"), True),
        (gpu_pod(resource="example.com/fpga"), False),
        (gpu_pod(resource="nvidia.com/nic"), False),
        (gpu_pod(resource=""), False),
        (initialised(gpu_pod()), True),
        (gpu_pod(phase="Pending"), True),
        (gpu_pod(phase="Succeeded"), False),
        (gpu_pod(phase="Failed"), False),
        (gpu_pod(owner="DaemonSet"), False),
        (mirror(gpu_pod()), False),
        (replace(gpu_pod(), spec=PodSpec(resource_claims=(ResourceClaim(name="gpu"),))), True),
    ],
)
def test_active_pods_that_use_a_gpu_have_to_be_evicted(pod: Pod, leaves: bool) -> None:
    assert bool(gpu_pods([pod], {"example.com/my-pool"})) is leaves


@pytest.mark.parametrize(
    ("pod", "rules", "word"),
    [
        (gpu_pod(), STRICT, None),
        (gpu_pod(owner=None), STRICT, "force"),
        (gpu_pod(empty_dir=True), STRICT, "deleteEmptyDir"),
        (gpu_pod(owner=None, empty_dir=True), LENIENT, None),
        (gpu_pod(owner=None, empty_dir=True), EvictionRules(force=True, delete_empty_dir=False), "deleteEmptyDir"),
    ],
)
def test_evictions_that_lose_something_need_permission_of_the_policy(
    pod: Pod, rules: EvictionRules, word: str | None
) -> None:
    found = eviction_problem(pod, rules)
    assert (found is None) if word is None else (found is not None and word in found)


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("app=train", {"app": "train"}, True),
        ("app==train", {"app": "other"}, False),
        ("app!=train", {}, True),
        ("app in (a, b), !keep", {"app": "b"}, True),
        ("app in (a,b),!keep", {"app": "b", "keep": "1"}, False),
        ("example.com/tier notin (x)", {"example.com/tier": "y"}, True),
        ("app", {"app": ""}, True),
        ("app=", {"app": ""}, True),
    ],
)
def test_selectors_mean_what_kubectl_means(text: str, labels: dict[str, str], expected: bool) -> None:
    assert parse(text).matches(labels) is expected


@pytest.mark.parametrize("text", ["app=a=b", "app in a", ",", "app;x", "a in (b", "=x"])
def test_an_invalid_selector_is_refused(text: str) -> None:
    with pytest.raises(BadSelector):
        parse(text)


@given(st.text(max_size=30))
def test_any_text_is_either_a_selector_or_refused(text: str) -> None:
    try:
        parse(text).matches({"app": "train"})
    except BadSelector:
        return
