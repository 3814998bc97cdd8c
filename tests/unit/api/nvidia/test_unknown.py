"""A person learns which fields of a spec have no effect, wherever they stand."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia import ClusterPolicySpec, NVIDIADriverSpec, ineffective_fields, unknown_fields
from unit.api.nvidia.stock import stock_driver, stock_policy

NAMES = st.text("abcxyz", min_size=1, max_size=4).map(lambda name: f"{name}Strange")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ()),
        ({"driver": {}}, ()),
        ({"draDriver": {"gpus": {"enabled": True}}}, ("draDriver",)),
        ({"driver": {"colour": "red"}}, ("driver.colour",)),
        ({"driver": {"upgradePolicy": {"drain": {"gently": True}}}}, ("driver.upgradePolicy.drain.gently",)),
        ({"driver": {"env": [{"name": "A"}, {"name": "B", "valueFrom": {}}]}}, ("driver.env[].valueFrom",)),
        ({"driver": {"env": [{"a": 1}, {"a": 2, "b": 3}]}}, ("driver.env[].a", "driver.env[].b")),
        ({"dcgm": {"z": 1}, "cdi": {"a": 1}}, ("cdi.a", "dcgm.z")),
        ({"kataManager": {"config": {"colour": "red"}}}, ("kataManager.config.colour",)),
        # Kubernetes' own shapes and maps are passed on.
        ({"daemonsets": {"labels": {"anything": "goes"}, "tolerations": [{"some": "key"}]}}, ()),
        ({"daemonsets": {"podSecurityContext": {"runAsUser": 1}}}, ()),
        ({"driver": {"resources": {"limits": {"cpu": 1}, "claims": []}}}, ("driver.resources.claims",)),
        # What has the wrong type is another complaint.
        ({"driver": "on", "dcgm": None, "toolkit": {"env": "none", "resources": []}}, ()),
        # Fields are spelt as in YAML.
        ({"device_plugin": {}, "driver": {"host_network": True}}, ("device_plugin", "driver.host_network")),
        ({"operator": {"use_ocp_driver_toolkit": True}}, ()),
    ],
)  # fmt: skip
def test_fields_that_the_types_do_not_have_are_named(spec: dict[str, object], expected: tuple[str, ...]) -> None:
    assert unknown_fields(spec, ClusterPolicySpec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"operator": {"defaultRuntime": "crio"}}, ("operator.defaultRuntime",)),
        ({"operator": {"initContainer": {"image": "cuda"}}}, ("operator.initContainer",)),
        ({"operator": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}, ("operator.annotations", "operator.labels")),
        ({"driver": {"useOpenKernelModules": True}}, ("driver.useOpenKernelModules",)),
        ({"toolkit": {"args": ["--fast"]}, "driver": {"args": ["init"]}}, ("toolkit.args",)),
        ({"dcgm": {"hostPort": 5555}}, ("dcgm.hostPort",)),
        ({"gds": {"args": ["a"]}, "gdrcopy": {"args": ["a"]}}, ("gdrcopy.args", "gds.args")),
        ({"validator": {"enabled": False}, "gfd": {"enabled": False}}, ("validator.enabled",)),
        ({"kataManager": {"enabled": True, "config": {}}, "psp": {"enabled": True}}, ("kataManager", "psp")),
        ({"cdi": {"default": True}}, ("cdi.default",)),
        # Nobody misses what was not asked for.
        ({"cdi": {"default": False}, "operator": {"defaultRuntime": "", "labels": {}}}, ()),
        ({"kataManager": {"enabled": False, "config": {"artifactsDir": "/"}}, "psp": {"enabled": False}}, ()),
        ({"driver": {"useOpenKernelModules": False}, "toolkit": {"args": []}, "validator": {"enabled": True}}, ()),
    ],
)
def test_fields_that_are_accepted_and_ignored_are_named(spec: dict[str, object], expected: tuple[str, ...]) -> None:
    assert ineffective_fields(spec, ClusterPolicySpec) == expected
    assert unknown_fields(spec, ClusterPolicySpec) == ()


def test_a_driver_has_ignored_fields_of_its_own() -> None:
    probe = {"periodSeconds": 1}
    spec = {
        "nodeAffinity": {"preferred": []},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "startupProbe": probe,
        "useOpenKernelModules": True,
        "args": ["a"],
    }
    assert ineffective_fields(spec, NVIDIADriverSpec) == (
        *("livenessProbe", "nodeAffinity", "readinessProbe", "useOpenKernelModules"),
    )


def test_a_policy_does_not_know_what_only_a_driver_has() -> None:
    spec = {"driver": {"driverType": "gpu", "repoConfig": {"name": "a"}, "enabled": True}}
    assert unknown_fields(spec, ClusterPolicySpec) == ("driver.driverType", "driver.repoConfig.name")
    assert unknown_fields(spec["driver"], NVIDIADriverSpec) == ("enabled",)


def test_everything_that_the_chart_makes_by_default_has_an_effect() -> None:
    for spec, kind in ((stock_policy()["spec"], ClusterPolicySpec), (stock_driver()["spec"], NVIDIADriverSpec)):
        assert unknown_fields(spec, kind) == ()
        assert ineffective_fields(spec, kind) == ()


@given(st.data())
def test_a_strange_field_is_found_wherever_it_is_put(data: st.DataObject) -> None:
    spec = copy.deepcopy(stock_policy()["spec"])
    path, place = data.draw(st.sampled_from(_objects(spec, "")))
    name = data.draw(NAMES)
    place[name] = data.draw(st.sampled_from([1, {}, {"deep": {"deeper": 1}}, [], None]))
    assert unknown_fields(spec, ClusterPolicySpec) == (f"{path}{name}",)


def _objects(spec: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every object of a spec whose fields have defined names."""
    free = {"labels", "additionalLabels"}
    inner = [
        _objects(value, f"{path}{name}.")
        for name, value in spec.items()
        if isinstance(value, dict) and name not in free
    ]
    return [(path, spec), *(found for objects in inner for found in objects)]
