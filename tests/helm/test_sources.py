"""Whatever is enabled on a node, each function has exactly one provider, or an error says why not."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.stored import read_spec
from gpu_control_plane.operator.stack.operands import (
    dcgm,
    dcgm_exporter,
    gpu_feature_discovery,
    operator_validation,
)
from helm.chart import Helm, Objects, Refused, command_of
from helm.operands import COMPONENTS, switched_on
from helm.test_operator_rendering import declared

POLICIES: Final[dict[str, dict[str, Any] | None]] = {
    "no policy": None,
    "silent": {},
    "on": {"enabled": True},
    "off": {"enabled": False},
}
"""What a ClusterPolicy in the values says about a function, if there is one."""
AGENT: Final = dict.fromkeys(("labels", "exporter", "validator"), ("auto", True, False))


class Function(msgspec.Struct, frozen=True):
    """What has to be done on a node, by whose name in which values."""

    agent: str | None
    section: str
    policy: str
    refusal: str


FUNCTIONS: Final = (
    Function("labels", "gfd", "gfd", "label Nodes with features of their cards"),
    Function("exporter", "dcgmExporter", "dcgmExporter", "export metrics of the cards"),
    Function("validator", "validator", "validator", "validate nodes"),
    Function(None, "dcgm", "dcgm", "run DCGM's host engine"),
)
STATES: Final = {
    "gfd": gpu_feature_discovery.STATE,
    "dcgmExporter": dcgm_exporter.STATE,
    "validator": operator_validation.STATE,
    "dcgm": dcgm.STATE,
}


def _cases() -> Iterator[Any]:
    for function in FUNCTIONS:
        wishes = AGENT[function.agent] if function.agent else (None,)
        for wish, ours, policy in itertools.product(wishes, (False, True), POLICIES):
            yield pytest.param(function, wish, ours, policy, id=f"{function.section}: {wish}, {ours}, {policy}")


@pytest.mark.parametrize(("function", "wish", "ours", "policy"), list(_cases()))
def test_there_is_one_source_or_a_refusal(
    helm: Helm, function: Function, wish: bool | str | None, ours: bool, policy: str
) -> None:
    values = _values(function, wish, ours=ours, policy=policy)
    asked = [
        *(["agent"] if wish is True else []),
        *(["bootstrap"] if ours else []),
        *(["policy"] if _policy_serves(function, policy) else []),
    ]
    if len(asked) > 1:
        with pytest.raises(Refused, match=f"Only one program may {function.refusal}, .* Switch off all but one"):
            helm.template(values)
        return
    expected = asked or (["agent"] if wish == "auto" else [])
    assert _sources(helm, function, values) == expected


def test_by_default_the_agent_serves_everything(helm: Helm) -> None:
    assert [_sources(helm, each, {}) for each in FUNCTIONS] == [["agent"], ["agent"], ["agent"], []]


@pytest.mark.parametrize(("wish", "written"), [("auto", True), (True, True), (False, False)])
def test_rights_to_label_nodes_and_taking_labels_off_follow_who_writes_them(
    helm: Helm, wish: bool | str, written: bool
) -> None:
    objects = helm.objects({"agent": {"labels": wish}})
    rules = objects.one("ClusterRole", "gpu-control-plane:agent")["rules"]
    assert any(rule["resources"] == ["nodes"] and "patch" in rule["verbs"] for rule in rules) is written
    names = {each["metadata"]["name"] for each in objects.of("ValidatingAdmissionPolicy")}
    assert ("gpu-control-plane-own-node" in names) is written
    (job,) = (job for job in objects.of("Job") if job["metadata"]["name"] == "gpu-control-plane-cleanup")
    assert ("--feature-labels" in command_of(job["spec"]["template"])) is written


def test_an_error_names_all_providers_that_are_enabled(helm: Helm) -> None:
    values = _values(FUNCTIONS[1], True, ours=True, policy="silent")
    with pytest.raises(Refused) as refused:
        helm.template(values)
    for name in ("agent.exporter.enabled", "bootstrap.dcgmExporter.enabled", "clusterPolicy.spec.dcgmExporter.enabled"):
        assert name in str(refused.value)


@pytest.mark.parametrize(
    ("toggle", "option"), [("enableNvidiaFSValidation", "--nvidia-fs"), ("enableGDRCopyValidation", "--gdrcopy")]
)
def test_additional_checks_are_made_by_the_enabled_validator(helm: Helm, toggle: str, option: str) -> None:
    assert option not in command_of(helm.objects().pod("agent"))
    values: dict[str, Any] = {"bootstrap": {"validator": {toggle: True}}}
    assert option in command_of(helm.objects(values).pod("agent"))
    values["bootstrap"]["validator"] |= switched_on("validator")["bootstrap"]["validator"]
    objects = helm.objects(values)
    assert option not in command_of(objects.pod("agent"))
    assert f"{option[2:]}-validation" in {each["name"] for each in objects.pod("validator")["spec"]["initContainers"]}


def _values(function: Function, wish: bool | str | None, *, ours: bool, policy: str) -> dict[str, Any]:
    """Everything else that a ClusterPolicy brings is off, so that only the function in question can clash."""
    values: dict[str, Any] = switched_on(function.section) if ours else {"bootstrap": {}}
    agent: dict[str, Any] = {}
    if function.agent == "labels":
        agent["labels"] = wish
    elif function.agent:
        agent[function.agent] = {"enabled": wish}
    said = POLICIES[policy]
    if said is not None:
        spec = {each.policy: {"enabled": False} for each in FUNCTIONS} | {function.policy: said}
        values["clusterPolicy"] = {"create": True, "spec": spec}
    return {**values, "agent": agent}


def _policy_serves(function: Function, policy: str) -> bool:
    """As the operator decides; its validator cannot be switched off."""
    said = POLICIES[policy]
    if said is None:
        return False
    spec = {each.policy: {"enabled": False} for each in FUNCTIONS} | {function.policy: said}
    required: dict[str, object] = {
        field.encode_name: {} for field in msgspec.structs.fields(ClusterPolicySpec) if field.required
    }
    return STATES[function.policy].enabled(read_spec(msgspec.json.encode(required | spec), ClusterPolicySpec).spec)


def _sources(helm: Helm, function: Function, values: dict[str, Any]) -> list[str]:
    """Read off what is rendered, not off the values."""
    objects = helm.objects(values)
    found = ["agent"] if _agent_serves(objects, function.agent) else []
    if COMPONENTS[function.section] in dict(objects.pods()):
        found.append("bootstrap")
    if values.get("clusterPolicy"):
        (policy,) = declared(helm, **values)
        spec = read_spec(msgspec.json.encode(policy.spec), ClusterPolicySpec).spec
        found += ["policy"] if STATES[function.policy].enabled(spec) else []
    return found


def _agent_serves(objects: Objects, part: str | None) -> bool:
    arguments = command_of(objects.pod("agent"))
    if part == "labels":
        return "--labels" in arguments
    return part is not None and f"--no-{part}" not in arguments
