"""The digest by which a new driver pod knows that the loaded driver may stay."""

from typing import Any

import pytest

from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from unit.operator.stack.driver_builders import COREOS, driver, policy

FILES = {"params": {"nvidia.conf": "1"}, "repos": {"a.list": "1"}, "topology": {"nvidia-topologyd.conf": "1"}}
NAMED = {"kernelModuleConfig": {"name": "params"}, "repoConfig": {"configMapName": "repos"}}
ENV = {"env": [{"name": "FABRIC_MANAGER_FABRIC_MODE", "value": "1"}]}


def digest(made: DaemonSetManifest) -> str:
    found = {made.container(name).env("DRIVER_CONFIG_DIGEST") for name in ("nvidia-driver-ctr", "k8s-driver-manager")}
    (value,) = found
    assert value
    return value


@pytest.mark.parametrize(
    "sections",
    [
        {"daemonsets": {"labels": {"helm.sh/chart": "gpu-operator-v99"}}},
        {"daemonsets": {"annotations": {"a": "b"}}},
        {"daemonsets": {"tolerations": [{"operator": "Exists"}], "priorityClassName": "mine"}},
        {"daemonsets": {"podSecurityContext": {"fsGroup": 1}}},
        {"driver": {"resources": {"limits": {"memory": "1Gi"}}}},
        {"driver": {"startupProbe": {"initialDelaySeconds": 5}, "livenessProbe": {"periodSeconds": 60}}},
        {"driver": {"imagePullSecrets": ["other"], "imagePullPolicy": "Always"}},
        {"driver": {"manager": {"repository": "r", "image": "m", "version": "2"}}},
        {"driver": {"upgradePolicy": {"autoUpgrade": False}}},
        {"toolkit": {"enabled": False}},
    ],
)
def test_it_stays_where_a_loaded_driver_does_not_care(sections: dict[str, dict[str, Any]]) -> None:
    assert digest(driver(policy(**sections))) == digest(driver(policy()))


@pytest.mark.parametrize(
    "sections",
    [
        {"driver": {"version": "580.1"}},
        {"driver": {"kernelModuleType": "open"}},
        {"driver": {"rdma": {"enabled": True}}},
        {"driver": {"args": ["init", "--x"]}},
        {"driver": ENV},
        {"driver": {"secretEnv": "s"}},
        {"driver": {"licensingConfig": {"secretName": "s"}}},
        {"driver": {"virtualTopology": {"config": "topology"}}},
        {"gds": {"enabled": True}},
        {"gdrcopy": {"enabled": True}},
        {"hostPaths": {"rootFS": "/sysroot"}},
    ],
)
def test_it_changes_with_what_is_loaded(sections: dict[str, dict[str, Any]]) -> None:
    assert digest(driver(policy(**sections), config_maps=FILES)) != digest(driver(policy()))


def test_edited_parameters_load_the_driver_anew_and_edited_repositories_only_make_a_new_pod() -> None:
    before = driver(policy(NAMED), config_maps=FILES)
    repositories = driver(policy(NAMED), config_maps={**FILES, "repos": {"a.list": "2"}})
    parameters = driver(policy(NAMED), config_maps={**FILES, "params": {"nvidia.conf": "2"}})
    assert digest(repositories) == digest(before)
    assert repositories.template != before.template
    assert digest(parameters) != digest(before)


def test_another_proxy_is_no_reason_to_load_a_driver_anew() -> None:
    digests = {
        digest(driver(policy(), COREOS, openshift=OpenShift(version="4.18", proxy={"NO_PROXY": hosts})))
        for hosts in ("a", "a,b")
    }
    assert len(digests) == 1
    newer = driver(policy(), COREOS, openshift=OpenShift(version="4.19", proxy={"NO_PROXY": "a"}))
    assert digest(newer) not in digests


def test_the_order_in_which_variables_are_written_does_not_count() -> None:
    one, two = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
    first, second = (driver(policy({"env": env})) for env in ([one, two], [two, one]))
    assert digest(first) == digest(second)
