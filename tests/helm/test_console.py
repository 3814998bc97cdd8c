"""The console in the chart: reached safely or not at all, and with no right to write."""

from typing import Any

import pytest

from helm.chart import Helm, Refused, command_of
from helm.rules import rules_of

INGRESS: dict[str, Any] = {"enabled": True, "host": "gpu.example.com"}
DECKHOUSE: dict[str, Any] = {
    "enabled": True,
    "ingress": INGRESS,
    "oidc": {"issuer": "https://dex.example.com/"},
    "deckhouse": {"dex": "DexClient", "allowedGroups": ["admins"]},
}


def _arguments(helm: Helm, **console: Any) -> list[str]:
    return command_of(helm.objects({"console": {"enabled": True, **console}}).pod("console"))


def test_it_is_not_there_unless_asked_for(helm: Helm) -> None:
    assert "console" not in dict(helm.objects().pods())


def test_without_tls_it_is_reached_by_port_forward_alone(helm: Helm) -> None:
    assert "--host=127.0.0.1" in _arguments(helm)
    objects = helm.objects({"console": {"enabled": True}})
    assert [port["name"] for port in objects.one("Service", "gpu-control-plane-console")["spec"]["ports"]] == [
        "metrics"
    ]
    (policy,) = objects.of("NetworkPolicy")
    assert policy["spec"]["ingress"] == [{"ports": [{"port": "metrics"}]}]


def test_with_tls_or_an_ingress_it_listens(helm: Helm) -> None:
    assert {"--host=0.0.0.0", "--tls-key=/etc/console/tls/tls.key"} <= set(_arguments(helm, tls={"secretName": "tls"}))
    behind = _arguments(helm, ingress=INGRESS)
    assert {"--host=0.0.0.0", "--behind-tls-proxy", "--public-url=https://gpu.example.com"} <= set(behind)


@pytest.mark.parametrize("impersonation", [False, True])
def test_it_may_write_nothing(helm: Helm, impersonation: bool) -> None:
    console = {
        "enabled": True,
        "ingress": INGRESS,
        "oidc": {"issuer": "https://dex.example.com", "clientSecret": "secret"},
        "impersonation": {"enabled": impersonation},
    }
    objects = helm.objects({"console": console})
    role = objects.one("ClusterRole", "gpu-control-plane:console")
    verbs = {(resource, verb) for rule in rules_of(role) for resource in rule.resources for verb in rule.verbs}
    asking = {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
    writing = {(resource, verb) for resource, verb in verbs if verb not in ("list", "watch")} - asking
    assert {verb for _, verb in writing} == (
        {"impersonate:user-info", "impersonate-on:user-info:get", "impersonate-on:user-info:patch"}
        if impersonation
        else set()
    )
    assert ("secrets", "list") not in verbs
    accounts = [each["metadata"]["name"] for each in objects.of("RoleBinding", "ClusterRoleBinding")]
    assert [name for name in accounts if "console" in name] == ["gpu-control-plane:console"]


def test_deckhouse_makes_it_a_client_of_its_dex(helm: Helm) -> None:
    objects = helm.objects({"console": DECKHOUSE})
    client = objects.one("DexClient", "gpu-console")
    assert client["spec"]["redirectURIs"] == ["https://gpu.example.com/sign-in/callback"]
    assert client["metadata"]["annotations"] == {"dexclient.deckhouse.io/allow-access-to-kubernetes": "true"}
    arguments = command_of(objects.pod("console"))
    assert "--oidc-client-id=dex-client-gpu-console@d8-gpu-operator" in arguments
    assert "--oidc-scope=audience:server:client_id:kubernetes" in arguments
    assert objects.pod("console")["spec"]["volumes"][0]["secret"]["secretName"] == "dex-client-gpu-console"


def test_deckhouse_can_sign_people_in_before_the_ingress(helm: Helm) -> None:
    console = {"enabled": True, "ingress": INGRESS, "deckhouse": {"dex": "DexAuthenticator"}}
    objects = helm.objects({"console": console})
    assert objects.one("DexAuthenticator", "gpu-console")["spec"]["sendAuthorizationHeader"]
    (ingress,) = objects.of("Ingress")
    annotations = ingress["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/auth-response-headers"] == "Authorization"


@pytest.mark.parametrize(
    ("console", "sentence"),
    [
        ({"ingress": {"enabled": True}}, "needs console.ingress.host"),
        ({"oidc": {"issuer": "https://dex.example.com"}}, "needs console.publicUrl or console.ingress"),
        ({"oidc": {"issuer": "https://dex.example.com"}, "ingress": INGRESS}, "needs console.oidc.clientSecret"),
        ({"oidc": {"issuer": "http://dex.example.com"}}, "does not match pattern"),
        ({"deckhouse": {"dex": "DexClient"}, "ingress": INGRESS}, "needs console.oidc.issuer"),
        ({"deckhouse": {"dex": "DexAuthenticator"}}, "needs console.ingress"),
        ({"impersonation": {"enabled": True}, "ingress": INGRESS}, "needs an identity provider"),
        ({"impersonation": {"groupsPrefix": "system:"}}, "'not' failed"),
        ({"publicUrl": "http://gpu.example.com"}, "does not match pattern"),
    ],
)
def test_what_would_not_work_is_refused(helm: Helm, console: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        helm.template({"console": {"enabled": True, **console}})
