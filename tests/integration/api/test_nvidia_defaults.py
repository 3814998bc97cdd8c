"""What the API server fills into a ClusterPolicy and an NVIDIADriver, and what it keeps of them."""

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from gpu_control_plane.api.nvidia import (
    ClusterPolicy,
    NVIDIADriver,
    StoredClusterPolicy,
    StoredNVIDIADriver,
    unknown_fields,
)
from gpu_control_plane.kube import Client, FieldManager, Object, Resource
from gpu_control_plane.kube.errors import NotFound
from integration.api.rows import changed
from unit.api.nvidia.stock import stock_driver, stock_policy

NAME = "what-is-filled-in"
FILLED: dict[str, Any] = {
    "daemonsets": {"updateStrategy": "RollingUpdate"},
    "dcgm": {},
    "dcgmExporter": {},
    "devicePlugin": {},
    "driver": {"kernelModuleType": "auto"},
    "gfd": {},
    "nodeStatusExporter": {},
    "operator": {"runtimeClass": "nvidia"},
    "toolkit": {"installDir": "/usr/local/nvidia"},
}
LEAVE = {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False}
UPGRADE = {"maxParallelUpgrades": 1, "maxUnavailable": "25%"}
DRIVER = {"default": False, "driverType": "gpu", "image": "nvcr.io/nvidia/driver", "kernelModuleType": "auto"}


class AnyPolicy(Object, frozen=True):
    """A ClusterPolicy with its spec as it is stored."""

    resource: ClassVar[Resource] = ClusterPolicy.resource

    spec: dict[str, Any]


class AnyDriver(Object, frozen=True):
    """An NVIDIADriver with its spec as it is stored."""

    resource: ClassVar[Resource] = NVIDIADriver.resource

    spec: dict[str, Any]


@pytest.fixture(autouse=True)
async def tidy(client: Client) -> AsyncIterator[None]:
    yield
    for kind in (AnyPolicy, AnyDriver):
        try:
            await client.delete(kind, NAME)
        except NotFound:
            continue


async def created(client: Client, kind: type[AnyPolicy] | type[AnyDriver], spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of an object as the API server holds it after creation."""
    made: AnyPolicy | AnyDriver = await client.create(kind, {"metadata": {"name": NAME}, "spec": spec})
    return made.spec


def minimal() -> dict[str, Any]:
    return {name: {} for name in FILLED}


async def test_a_policy_with_its_required_sections_only(client: Client) -> None:
    assert await created(client, AnyPolicy, minimal()) == FILLED


@pytest.mark.parametrize(
    ("section", "given", "filled"),
    [
        ("driver.upgradePolicy", {}, {"autoUpgrade": False, **UPGRADE}),
        ("driver.upgradePolicy", {"podDeletion": {}}, {"autoUpgrade": False, **UPGRADE, "podDeletion": LEAVE}),
        (
            "driver.upgradePolicy",
            {"waitForCompletion": {}},
            {"autoUpgrade": False, **UPGRADE, "waitForCompletion": {"timeoutSeconds": 0}},
        ),
        (
            "driver.upgradePolicy",
            {"drain": {}, "maxUnavailable": 3},
            {"autoUpgrade": False, "maxParallelUpgrades": 1, "maxUnavailable": 3, "drain": {"enable": False, **LEAVE}},
        ),
        ("driver.upgradePolicy", {"canary": {}}, {"autoUpgrade": False, **UPGRADE, "canary": {}}),
        ("driver.startupProbe", {}, {}),
        ("driver.manager", {}, {}),
        ("driver.rdma", {}, {}),
        ("devicePlugin.mps", {}, {"root": "/run/nvidia/mps"}),
        ("devicePlugin.config", {}, {}),
        ("dcgmExporter.serviceMonitor", {}, {}),
        ("mig", {}, {}),
        ("migManager", {}, {}),
        ("migManager.config", {}, {"default": "all-disabled"}),
        ("migManager.config", {"default": ""}, {"default": ""}),
        ("validator", {}, {}),
        ("gds", {}, {}),
        ("sandboxWorkloads", {}, {"defaultWorkload": "container", "mode": "kubevirt"}),
        ("vfioManager", {}, {}),
        ("vgpuDeviceManager", {}, {}),
        ("vgpuDeviceManager.config", {}, {"default": "default"}),
        ("ccManager", {}, {}),
        ("kataManager.config", {}, {"artifactsDir": "/opt/nvidia-gpu-operator/artifacts/runtimeclasses"}),
        ("cdi", {}, {"enabled": True, "nriPluginEnabled": False, "default": False}),
        ("psa", {}, {}),
        ("hostPaths", {}, {"kubeletRootDir": "/var/lib/kubelet"}),
    ],
)
async def test_defaults_appear_where_a_part_is_given(
    client: Client, section: str, given: dict[str, Any], filled: dict[str, Any]
) -> None:
    seen = await created(client, AnyPolicy, changed(minimal(), {section: given}))
    assert seen == changed(FILLED, {section: filled})


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, DRIVER),
        ({"upgradePolicy": {}}, {**DRIVER, "upgradePolicy": {"autoUpgrade": True, **UPGRADE}}),
        (
            {"upgradePolicy": {"drain": {}}},
            {**DRIVER, "upgradePolicy": {"autoUpgrade": True, **UPGRADE, "drain": {"enable": False, **LEAVE}}},
        ),
        (
            {"default": True, "driverType": "vgpu", "gds": {}},
            {**DRIVER, "default": True, "driverType": "vgpu", "gds": {}},
        ),
    ],
)
async def test_a_driver_is_filled_in(client: Client, given: dict[str, Any], filled: dict[str, Any]) -> None:
    assert await created(client, AnyDriver, given) == filled


async def test_what_the_chart_makes_by_default_is_taken_and_kept(client: Client) -> None:
    policy, driver = stock_policy()["spec"], stock_driver()["spec"]
    assert await created(client, AnyPolicy, policy) == changed(policy, {"cdi.default": False})
    assert await created(client, AnyDriver, driver) == driver


async def test_fields_nobody_knows_survive_and_are_named(client: Client) -> None:
    strange = {
        "shiny": {"deep": [1, {"deeper": True}]},
        "driver.colour": "red",
        "driver.env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "driver.upgradePolicy.podDeletion.politely": True,
        "dcgmExporter.serviceMonitor.relabelings": [{"action": "drop", "regex": ".*"}],
        "daemonsets.tolerations": [{"operator": "Exists", "tolerationSeconds": 5}],
    }
    sent = changed(stock_policy()["spec"], strange)
    assert await created(client, AnyPolicy, sent) == changed(
        sent, {"cdi.default": False, "driver.upgradePolicy.podDeletion": {**LEAVE, "politely": True}}
    )
    read = (await client.get(StoredClusterPolicy, NAME)).read()
    assert read.unknown == (
        *("driver.colour", "driver.env[].valueFrom", "driver.upgradePolicy.podDeletion.politely", "shiny"),
    )
    # Writers that know nothing of them leave them alone.
    await client.patch(AnyPolicy, NAME, {"spec": {"driver": {"version": "1"}}})
    await client.apply(AnyPolicy, NAME, {"spec": {"driver": {"version": "2"}}}, manager=FieldManager("tests"))
    kept = (await client.get(AnyPolicy, NAME)).spec
    assert (kept["shiny"], kept["driver"]["colour"]) == (strange["shiny"], "red")


async def test_fields_nobody_knows_survive_in_a_driver(client: Client) -> None:
    sent = changed(stock_driver()["spec"], {"colour": "red", "manager.flags": ["a"]})
    seen = await created(client, AnyDriver, sent)
    assert seen == sent
    assert unknown_fields(seen, type((await client.get(NVIDIADriver, NAME)).spec)) == ("colour", "manager.flags")
    assert (await client.get(StoredNVIDIADriver, NAME)).read().unknown == ("colour", "manager.flags")
