"""Nothing locks the cluster out, whatever is missing; and odd users are judged as well.

The API server of these tests does not have our CRDs at all.
"""

from typing import Any

from blocking_wait import until
from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.local.certificates import Authority
from integration.access.cases import OURS, POOLS, TRAINING
from integration.access.env import NAMESPACES, AccessEnv, grant, pod, pool

INDEX = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-pool-access"


def test_without_the_index_pods_are_admitted_until_it_is_there_again(access: AccessEnv) -> None:
    access.pools(POOLS)
    assert not access.create("plain", pod(TRAINING)).admitted
    assert access.request("DELETE", INDEX).admitted
    until(lambda: access.create("plain", pod(TRAINING)).admitted)
    assert all(access.create(namespace, pod()).admitted for namespace in (*NAMESPACES, NAMESPACE))
    access.pools(POOLS)
    assert not access.create("plain", pod(TRAINING)).admitted


def test_an_index_without_data_closes_pools_and_nothing_else(access: AccessEnv) -> None:
    assert access.request("PUT", INDEX, {"metadata": {"name": "gpu-pool-access"}}).admitted
    until(lambda: "no GPU pool offers" in access.create("research", pod(TRAINING)).message)
    assert all(access.create(namespace, pod()).admitted for namespace in (*NAMESPACES, NAMESPACE))
    assert access.create("plain", pod("nvidia.com/gpu")).admitted


def test_garbage_in_the_index_refuses_pods_of_that_resource_only(access: AccessEnv) -> None:
    """Only administrators could write it; it must open nothing and break nothing else."""
    garbage = {f"{OURS}_a": "", f"{OURS}_b": "pool b\nselector In\n\n", f"{OURS}_c": "\n\n\nnamespace  \nuser"}
    assert access.request("PUT", INDEX, {"metadata": {"name": "gpu-pool-access"}, "data": garbage}).admitted
    until(lambda: "no GPU pool offers" not in access.create("research", pod(f"{OURS}/b")).message)
    for name in "abc":
        assert not access.create("research", pod(f"{OURS}/{name}")).admitted
    assert access.create("research", pod()).admitted


def test_the_longest_lists_are_affordable(access: AccessEnv) -> None:
    """Two pools that fill the index, both asked for by every container of a pod, by a member of 500 groups."""
    longest: dict[str, list[Any]] = {
        "namespaces": [f"{number:063}" for number in range(512)],
        "serviceAccounts": [{"namespace": f"{number:063}", "name": "a" * 253} for number in range(512)],
        "users": [f"{number:0253}" for number in range(256)],
        "groups": [f"{number:0253}" for number in range(255)],
    }
    last = {**longest, "groups": [*longest["groups"], "ml-leads"]}
    access.pools([pool("long", access=longest), pool("last", access=last)])
    groups = [f"group-{number:040}" for number in range(500)]
    many = pod(*[f"{OURS}/last"] * 8, f"{OURS}/long")
    answer = access.create("plain", many, user="bob", groups=groups)
    assert answer.sentence.startswith(f"The pod asks for {OURS}/last and {OURS}/long, and at least one of these GPU")
    assert access.create("plain", pod(*[f"{OURS}/last"] * 8), user="bob", groups=[*groups, "ml-leads"]).admitted


def test_a_user_whose_name_has_two_lines_is_nobody_else(access: AccessEnv) -> None:
    access.pools(POOLS)
    user = "x\nuser alice"
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    grant(access, "*", [subject], namespace="plain")
    folder = access.cluster.folder / "pki"
    made = Authority(folder).client("two-lines", user, None)
    answer = access.create("plain", pod(f"{OURS}/people"), identity=(made.certificate, made.key))
    assert "nor x\\nuser alice, who creates the pod." in answer.sentence
