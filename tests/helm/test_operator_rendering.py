"""What the chart renders for ClusterPolicies and NVIDIADrivers. The controller may grant all that operands need."""

from typing import Any

import msgspec
import pytest
import yaml

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.stored import read_spec
from gpu_control_plane.installation.declare import Declared
from gpu_control_plane.operator.node_facts import DEPLOY_DRIVER, node_kind
from gpu_control_plane.operator.stack.manifest import Manifest, assets
from gpu_control_plane.operator.stack.operands import STATES
from gpu_control_plane.operator.stack.render import render_policy
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from helm.chart import CHART, NAMESPACE, OPERANDS, VALUE_SETS, Helm, Objects, command_of, container
from helm.rules import Right, Rule, rules_of, uncovered
from integration.stack.operator_env import gpu_node
from unit.api.nvidia.stock import stock_driver, stock_policy

CONTROLLER = "gpu-control-plane-controller"
READING = Rule(("",), ("pods", "nodes"), ("get", "list"))


def declared(helm: Helm, **values: Any) -> list[Declared]:
    """What the job applies, by the arguments it gets."""
    command = command_of(helm.objects(values).pod("declare"))
    return [msgspec.json.decode(word, type=Declared) for word in command[4:]]


def held(objects: Objects, namespace: str | None) -> list[Rule]:
    """What the controller may do everywhere, and, with a namespace, in that one."""
    bindings = [each for each in objects.of("ClusterRoleBinding") if _names_controller(each)]
    local = [
        each
        for each in objects.of("RoleBinding")
        if _names_controller(each) and each["metadata"]["namespace"] == namespace
    ]
    roles = [objects.one("ClusterRole", each["roleRef"]["name"]) for each in bindings]
    roles += [objects.one("Role", each["roleRef"]["name"]) for each in local]
    return [rule for role in roles for rule in rules_of(role)]


def _names_controller(binding: Manifest) -> bool:
    return any(subject["name"] == CONTROLLER for subject in binding["subjects"])


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        (READING, set()),
        (Rule(("",), ("pods",), ("list",), ("mine",)), set()),
        (Rule(("",), ("secrets",), ("get",), ("mine",)), set()),
        (Rule(("",), ("secrets",), ("get",), ("mine", "yours")), {Right("", "secrets", "get", "yours")}),
        (Rule(("",), ("secrets",), ("get",)), {Right("", "secrets", "get")}),
        (Rule(("",), ("pods",), ("get", "delete")), {Right("", "pods", "delete")}),
        (Rule(("", "apps"), ("pods",), ("get",)), {Right("apps", "pods", "get")}),
        (Rule(("",), ("pods", "pods/eviction"), ("get",)), {Right("", "pods/eviction", "get")}),
    ],
    ids=str,
)
def test_a_right_is_missing_exactly_where_no_role_grants_it(wanted: Rule, missing: set[Right]) -> None:
    assert uncovered([wanted], [READING, Rule(("",), ("secrets",), ("get",), ("mine",))]) == missing


@pytest.mark.parametrize("state", [state.name for state in STATES])
@pytest.mark.parametrize("values", [{}, {"operator": {"namespace": OPERANDS}}], ids=["here", "elsewhere"])
def test_the_controller_holds_what_operands_are_granted(helm: Helm, values: dict[str, Any], state: str) -> None:
    objects = helm.objects(values)
    operands = values.get("operator", {}).get("namespace", NAMESPACE)
    for role in assets(state, openshift=True):
        if role["kind"] in ("Role", "ClusterRole"):
            namespace = operands if role["kind"] == "Role" else None
            assert uncovered(rules_of(role), held(objects, namespace)) == set(), role["metadata"]["name"]


def test_the_controller_holds_what_any_nvidiadriver_is_granted(helm: Helm) -> None:
    """Each has roles of its own, about a SecurityContextConstraints of its own name."""
    (role,) = (each for each in assets("state-driver", openshift=True) if each["kind"] == "Role")
    named = [msgspec.structs.replace(rule, resource_names=("nvidia-gpu-driver-mine-rhel9",)) for rule in rules_of(role)]
    assert uncovered(named, held(helm.objects(), NAMESPACE)) == set()


def test_without_the_operator_nothing_of_it_is_there(helm: Helm) -> None:
    objects = helm.objects(VALUE_SETS["without-operator"])
    components = {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in objects.all}
    assert "operator" not in components
    arguments = command_of(objects.pod("controller"))
    assert "--without=operator" in arguments
    assert not [each for each in arguments if each.startswith("--operand-namespace")]
    rights = held(objects, NAMESPACE)
    assert {"nvidia.com", "rbac.authorization.k8s.io"}.isdisjoint(group for rule in rights for group in rule.api_groups)


def test_the_controller_gets_the_operand_namespace_and_images(helm: Helm) -> None:
    objects = helm.objects(VALUE_SETS["stack"])
    assert f"--operand-namespace={OPERANDS}" in command_of(objects.pod("controller"))
    env = {each["name"]: each.get("value") for each in container(objects.pod("controller"))["env"]}
    assert env["VALIDATOR_IMAGE"] == "registry.example/validator:v1"
    assert f"--operand-namespace={NAMESPACE}" in command_of(helm.objects().pod("controller"))


def test_required_sections_of_a_policy_are_added_and_the_rest_is_left(helm: Helm) -> None:
    (policy,) = declared(helm, clusterPolicy={"create": True, "spec": {"driver": {"enabled": False}}})
    fields = msgspec.structs.fields(ClusterPolicySpec)
    required = {field.encode_name for field in fields if field.required}
    assert (policy.kind, policy.name) == ("ClusterPolicy", "cluster-policy")
    assert required
    assert policy.spec == {name: {} for name in required} | {"driver": {"enabled": False}}


def test_specs_reach_the_job_as_they_are(helm: Helm) -> None:
    """Numbers stay numbers, and nothing in a text means something to a shell, to YAML or to the kubelet."""
    policy, driver = stock_policy()["spec"], stock_driver()["spec"]
    policy["driver"]["env"] = [{"name": "ODD", "value": "$(POD_NAME) $$ <&> 'a' \"b\"  two\nlines: {{ x }} #"}]
    found = declared(
        helm,
        clusterPolicy={"create": True, "name": "mine", "spec": policy},
        nvidiaDriver={"create": True, "spec": driver},
    )
    assert [(each.kind, each.name) for each in found] == [("ClusterPolicy", "mine"), ("NVIDIADriver", "default")]
    assert [each.spec for each in found] == [policy, driver]


def test_the_objects_come_after_their_crds(helm: Helm) -> None:
    objects = helm.objects(VALUE_SETS["stack"])

    def weights(component: str) -> list[int]:
        found = (
            each["metadata"]
            for each in objects.all
            if each["metadata"]["labels"]["app.kubernetes.io/component"] == component
        )
        return [int(meta["annotations"]["helm.sh/hook-weight"]) for meta in found]

    assert max(weights("install-crds")) < min(weights("declare"))


def test_nothing_is_declared_unless_asked(helm: Helm) -> None:
    assert "declare" not in dict(helm.objects().pods())


def test_the_policy_in_the_docs_can_be_carried_out(helm: Helm) -> None:
    """Every operand that it switches on has an image, on a usual node that is to get a driver."""
    text = (CHART.parents[1] / "docs/install.md").read_text()
    section = text.split("## Drivers and the rest of the stack")[1].split("\n## ")[0]
    (example,) = (block.split("```")[0] for block in section.split("```yaml\n")[1:])
    (policy,) = declared(helm, **yaml.safe_load(example))
    spec = read_spec(msgspec.json.encode(policy.spec), ClusterPolicySpec)
    assert spec.unknown == ()
    node = msgspec.convert(gpu_node("any", labels={DEPLOY_DRIVER: "true"}), Node)
    render_input = RenderInput(policy=spec.spec, platform=Platform(namespace=NAMESPACE), kinds={node_kind(node): 1})
    rendered = render_policy(render_input)
    assert [each.problem for each in rendered if each.problem] == []
    daemonsets = {m["metadata"]["name"] for each in rendered for m in each.manifests if m["kind"] == "DaemonSet"}
    assert {"nvidia-driver-daemonset", "nvidia-operator-validator"} <= daemonsets
