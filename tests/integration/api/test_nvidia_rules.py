"""A bad ClusterPolicy or NVIDIADriver is refused, with a sentence that says what to do."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from gpu_control_plane.api.nvidia import DEFINITIONS, StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import Client
from gpu_control_plane.kube.errors import Invalid, NotFound
from integration.api.rows import GONE, changed
from unit.api.nvidia.stock import stock_driver, stock_policy

NAME = "what-is-refused"
UNSUPPORTED = "supported values"
BELOW = "should be greater than or equal to"
REQUIRED = (
    *("operator", "daemonsets", "driver", "toolkit", "devicePlugin"),
    *("dcgm", "dcgmExporter", "nodeStatusExporter", "gfd"),
)


DRIVERS: Final[tuple[tuple[dict[str, object], str | None], ...]] = (
    ({"nodeSelector": {"pool": "a"}}, "the default NVIDIADriver takes the nodes that no other one selects"),
    ({"nodeSelector": {}}, None),
    ({"nodeSelector": {"pool": "a"}, "default": False}, None),
    ({"nodeSelector": {"pool": "a"}, "default": GONE}, None),
    ({"driverType": "cpu"}, UNSUPPORTED),
    ({"driverType": "vgpu-host-manager"}, None),
    ({"kernelModuleType": "closed"}, UNSUPPORTED),
    ({"image": ""}, None),
    ({"manager.image": ""}, "spec.manager.image in body should match"),
    ({"gds.image": ""}, "spec.gds.image in body should match"),
    ({"startupProbe.failureThreshold": 0}, f"{BELOW} 1"),
    ({"upgradePolicy.maxUnavailable": "half"}, "maxUnavailable in body should match"),
    ({"upgradePolicy.maxParallelUpgrades": -1}, f"{BELOW} 0"),
)
CHANGES: Final[tuple[tuple[dict[str, object], dict[str, object], str | None], ...]] = (
    ({}, {"driverType": "vgpu"}, "driverType cannot be changed: delete the object and create another"),
    ({"usePrecompiled": False}, {"usePrecompiled": True}, "usePrecompiled cannot be changed"),
    ({"usePrecompiled": True}, {"usePrecompiled": False}, "usePrecompiled cannot be changed"),
    ({"usePrecompiled": True}, {"usePrecompiled": None}, "usePrecompiled cannot be changed"),
    ({"usePrecompiled": GONE}, {"usePrecompiled": True}, "usePrecompiled cannot be changed"),
    ({"usePrecompiled": GONE}, {"usePrecompiled": False}, None),
    ({"usePrecompiled": True}, {"version": "596", "default": False}, None),
    ({"default": False}, {"default": True}, None),
    ({}, {"nodeSelector": {"pool": "a"}}, "remove nodeSelector or default"),
)


@pytest.fixture(autouse=True)
async def tidy(client: Client) -> AsyncIterator[None]:
    yield
    for kind in (StoredClusterPolicy, StoredNVIDIADriver):
        try:
            await client.delete(kind, NAME)
        except NotFound:
            continue


def policy(change: dict[str, object]) -> dict[str, Any]:
    return changed(stock_policy(), {"metadata": {"name": NAME}} | _in_spec(change))


def driver(change: dict[str, object]) -> dict[str, Any]:
    return changed(stock_driver(), {"metadata": {"name": NAME}} | _in_spec(change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(({section: GONE}, f"spec.{section}: Required value") for section in REQUIRED),
        ({"driver.env": [{"value": "x"}]}, "spec.driver.env[0].name: Required value"),
        ({"driver.image": "nvcr.io/"}, None),  # the pattern has no anchors: one good character is enough
        ({"driver.image": ""}, "spec.driver.image in body should match"),
        ({"toolkit.image": "/"}, "spec.toolkit.image in body should match"),
        ({"operator.initContainer": {"image": ""}}, "spec.operator.initContainer.image in body should match"),
        ({"driver.manager.image": ""}, "spec.driver.manager.image in body should match"),
        ({"dcgmExporter.serviceMonitor.interval": "soon"}, "interval in body should match"),
        ({"dcgmExporter.serviceMonitor.scrapeTimeout": "1.5s"}, "scrapeTimeout in body should match"),
        ({"dcgmExporter.serviceMonitor.interval": "1m30s", "operator.metrics.serviceMonitor.interval": ""}, None),
        *(
            ({f"driver.startupProbe.{field}": 0}, f"spec.driver.startupProbe.{field} in body {BELOW} 1")
            for field in ("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
        ),
        ({"driver.startupProbe.initialDelaySeconds": 0}, None),
        ({"driver.livenessProbe.periodSeconds": 0}, f"{BELOW} 1"),
        ({"driver.readinessProbe.periodSeconds": 0}, f"{BELOW} 1"),
        ({"driver.upgradePolicy.maxParallelUpgrades": -1}, f"{BELOW} 0"),
        ({"driver.upgradePolicy.maxParallelUpgrades": 0}, None),
        ({"driver.upgradePolicy.drain.timeoutSeconds": -1}, f"{BELOW} 0"),
        ({"driver.upgradePolicy.podDeletion.timeoutSeconds": -1}, f"{BELOW} 0"),
        ({"driver.upgradePolicy.waitForCompletion.timeoutSeconds": -1}, f"{BELOW} 0"),
        *(({"driver.upgradePolicy.maxUnavailable": good}, None) for good in (0, 7, "100%", "1%")),
        ({"driver.upgradePolicy.maxUnavailable": -3}, "maxUnavailable in body should be greater than or equal to 0"),
        ({"driver.upgradePolicy.maxUnavailable": "some"}, "maxUnavailable in body should match"),
        ({"driver.upgradePolicy.maxUnavailable": 0.5}, "maxUnavailable in body must be of type integer,string"),
        ({"daemonsets.updateStrategy": "Recreate"}, UNSUPPORTED),
        ({"driver.kernelModuleType": "closed"}, UNSUPPORTED),
        ({"mig.strategy": "double"}, UNSUPPORTED),
        ({"migManager.config.default": "all-1g.10gb"}, UNSUPPORTED),
        ({"migManager.config.default": ""}, None),
        ({"sandboxWorkloads.defaultWorkload": "vm"}, UNSUPPORTED),
        ({"sandboxWorkloads.mode": "qemu"}, UNSUPPORTED),
        ({"ccManager.defaultMode": "maybe"}, UNSUPPORTED),
        ({"driver.enabled": "yes"}, "spec.driver.enabled in body must be of type boolean"),
        ({"daemonsets.rollingUpdate.maxUnavailable": 1}, "maxUnavailable in body must be of type string"),
        ({"driver.resources.limits": {"cpu": "500m", "memory": "1.5Gi", "example.com/x": 2}}, None),
        ({"driver.resources.limits": {"cpu": "much"}}, "spec.driver.resources.limits.cpu in body should match"),
        ({"daemonsets.labels": {"a": 1}}, "must be of type string"),
    ],
)  # fmt: skip
async def test_policies(client: Client, change: dict[str, object], says: str | None) -> None:
    await _attempt(client, StoredClusterPolicy, policy(change), says)


@pytest.mark.parametrize(("change", "says"), DRIVERS)
async def test_drivers(client: Client, change: dict[str, object], says: str | None) -> None:
    await _attempt(client, StoredNVIDIADriver, driver(change), says)


@pytest.mark.parametrize(("before", "after", "says"), CHANGES)
async def test_changes_of_a_driver(
    client: Client, before: dict[str, object], after: dict[str, object], says: str | None
) -> None:
    await client.create(StoredNVIDIADriver, driver(before))
    if says is None:
        await client.patch(StoredNVIDIADriver, NAME, {"spec": after})
        return
    with pytest.raises(Invalid) as refusal:
        await client.patch(StoredNVIDIADriver, NAME, {"spec": after})
    assert says in refusal.value.message


def test_every_rule_of_a_driver_is_tried() -> None:
    rules = DEFINITIONS[1].schema()["properties"]["spec"]["x-kubernetes-validations"]
    expected = [row[-1] for row in (*DRIVERS, *CHANGES) if row[-1]]
    assert [rule["message"] for rule in rules if not any(words in rule["message"] for words in expected)] == []


async def _attempt(
    client: Client,
    kind: type[StoredClusterPolicy] | type[StoredNVIDIADriver],
    body: dict[str, Any],
    says: str | None,
) -> None:
    if says is None:
        made: StoredClusterPolicy | StoredNVIDIADriver = await client.create(kind, body)
        assert made.read().unknown == ()
        return
    with pytest.raises(Invalid) as refusal:
        await client.create(kind, body)
    assert says in refusal.value.message


def _in_spec(change: dict[str, object]) -> dict[str, object]:
    return {f"spec.{path}": value for path, value in change.items()}
