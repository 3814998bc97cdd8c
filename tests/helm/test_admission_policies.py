"""The chart's admission policies are those of the code, with what values say."""

from typing import Any

import pytest
import yaml

from gpu_control_plane.installation.policies import POLICY_NAMES
from gpu_control_plane.local.versions import KUBERNETES
from gpu_control_plane.rules.access_policy import access_policies
from gpu_control_plane.rules.bypass_policy import EXEMPT, BypassSettings, bypass_policies
from helm.chart import CHART, NAMESPACE, OPERANDS, RELEASE, Helm, Objects

NO_CLASSES = ("",)


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ({}, BypassSettings()),
        (
            {
                "access": {"exemptNamespaces": ["sriov"], "runtimeClasses": ["gpu"], "denyKubeletSockets": True},
                "controller": {"nvidiaNamespaces": ["infra"]},
                "operator": {"namespace": OPERANDS},
            },
            BypassSettings(
                exempt_namespaces=EXEMPT | {"sriov", "infra", OPERANDS},
                runtime_classes=("gpu",),
                deny_kubelet_sockets=True,
            ),
        ),
        ({"access": {"runtimeClasses": []}}, BypassSettings(runtime_classes=NO_CLASSES)),
    ],
    ids=["default", "chosen", "without-runtime-classes"],
)
def test_the_chart_renders_the_policies_of_the_code(
    helm: Helm, values: dict[str, Any], settings: BypassSettings
) -> None:
    rendered = helm.objects(values)
    for wanted in (*access_policies(NAMESPACE), *bypass_policies(settings)):
        found = rendered.one(wanted["kind"], wanted["metadata"]["name"])
        assert found["spec"] == wanted["spec"]
        assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_no_value_switches_the_guard_off(helm: Helm) -> None:
    nothing = {"access": {"exemptNamespaces": [], "runtimeClasses": []}, "webhook": {"enabled": False}}
    rendered = helm.objects(nothing)
    assert {each["metadata"]["name"] for each in rendered.of("ValidatingAdmissionPolicyBinding")} >= POLICY_NAMES


DECKHOUSE = ("OperationPolicy", "SecurityPolicy")


@pytest.mark.parametrize(("wanted", "known", "kinds"), [(True, True, DECKHOUSE), (True, False, ()), (False, True, ())])
def test_deckhouses_policies_come_where_its_kinds_are_known_and_somebody_asks(
    helm: Helm, wanted: bool, known: bool, kinds: tuple[str, ...]
) -> None:
    options = [option for kind in DECKHOUSE for option in ("--api-versions", f"deckhouse.io/v1alpha1/{kind}")]
    values = {"access": {"deckhousePolicies": wanted}}
    cluster = ("--kube-version", KUBERNETES.version, "--namespace", NAMESPACE, *(options if known else ()))
    rendered = Objects(yaml.safe_load_all(helm.run("template", RELEASE, str(CHART), *cluster, values=values)))
    found = rendered.of(*DECKHOUSE)
    assert tuple(each["kind"] for each in found) == kinds
    for each in found:
        (label,) = each["spec"]["match"]["namespaceSelector"]["labelSelector"]["matchLabels"].items()
        assert label in {
            ("operation-policy.deckhouse.io/gpu-control-plane", "true"),
            ("security.deckhouse.io/gpu-control-plane", "restricted"),
        }
