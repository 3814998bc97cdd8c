"""A real API server accepts every object of the driver's state, field by field."""

from typing import Any

import pytest

from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import ApiError
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.render_input import Platform
from integration.operator.strict import accept
from unit.operator.drivers.builders import driver, node
from unit.operator.stack.driver_builders import COREOS, OLD_UBUNTU, RHEL, SLES, UBUNTU, policy, rendered

EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": ["registry"],
    "resources": {"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "100m"}},
    "args": ["init", "--loud"],
    "env": [{"name": "NODE_NAME", "value": "mine"}, {"name": "EXTRA", "value": "1"}],
    "hostNetwork": True,
    "kernelModuleType": "open",
    "startupProbe": {"successThreshold": 3, "initialDelaySeconds": 1},
    "livenessProbe": {"successThreshold": 3},
    "readinessProbe": {"successThreshold": 3},
    "rdma": {"enabled": True, "useHostMofed": True},
    "repoConfig": {"configMapName": "files"},
    "certConfig": {"name": "files"},
    "kernelModuleConfig": {"name": "files"},
    "licensingConfig": {"secretName": "licence", "nlsEnabled": True},
    "virtualTopology": {"config": "topology"},
    "secretEnv": "secret",
}
GDS = {"repository": "r", "image": "gds", "version": "2.29.4"}
ADD_ONS: dict[str, Any] = {"gds": {"enabled": True}, "gdrcopy": {"enabled": True}}
TOOLKIT: dict[str, Any] = {"operator": {"use_ocp_driver_toolkit": True}, **ADD_ONS}
OPENSHIFT = OpenShift(version="4.18", proxy={"NO_PROXY": "x"}, proxy_ca=True, toolkit_images={COREOS.ostree: "x@y"})


@pytest.mark.parametrize(
    ("sections", "openshift", "count"),
    [
        ({}, None, 4),
        ({"driver": EVERYTHING, **ADD_ONS, "hostPaths": {"rootFS": "/sysroot"}}, None, 4),
        ({"driver": {"usePrecompiled": True}}, None, 4),
        ({"driver": EVERYTHING, **TOOLKIT}, OPENSHIFT, 1),
    ],
    ids=["stock", "everything", "precompiled", "toolkit"],
)
async def test_every_object_is_accepted_strictly(
    client: Client, namespace: str, sections: dict[str, Any], openshift: OpenShift | None, count: int
) -> None:
    kinds = (COREOS,) if openshift else (UBUNTU, OLD_UBUNTU, RHEL, SLES)
    files = {"files": {"a.conf": "1", "b.conf": "2"}, "topology": {"nvidia-topologyd.conf": "3"}}
    made = rendered(policy(**sections), *kinds, openshift=openshift, config_maps=files)
    assert not made.problem
    for manifest in made.manifests:
        await accept(client, manifest, namespace)
    assert sum(manifest["kind"] == "DaemonSet" for manifest in made.manifests) == count


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"driverType": "vgpu-host-manager", "usePrecompiled": True},
        {"gds": {**GDS, "enabled": True}, "kernelModuleType": "open", "rdma": {"enabled": True}, "startupProbe": None},
        {"tolerations": [{"operator": "Exists"}], "podSecurityContext": {"fsGroup": 1}, "labels": {"a": "b"}},
    ],
)
async def test_every_object_of_an_nvidiadriver_is_accepted_strictly(
    client: Client, namespace: str, spec: dict[str, Any]
) -> None:
    nodes = [node("u", owner="demo"), node("s", owner="demo", system="sles 15-SP6")]
    made = render_driver(driver("demo", **spec), nodes, Platform(namespace=namespace), None)
    assert sum(manifest["kind"] == "DaemonSet" for manifest in made) == 2
    for manifest in made:
        await accept(client, manifest, namespace)


async def test_a_field_that_does_not_exist_would_be_refused(client: Client, namespace: str) -> None:
    manifest = next(held for held in rendered(policy()).manifests if held["kind"] == "DaemonSet")
    manifest["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(ApiError, match="hostPid"):
        await accept(client, manifest, namespace)
