"""Whom an identity provider may name, where the console goes by its word."""

from typing import Any

import pytest

from gpu_control_plane.console.errors import NotSignedIn
from gpu_control_plane.console.settings import ConsoleSettings
from gpu_control_plane.console.sign_in.oidc import Tokens
from gpu_control_plane.console.sign_in.people import person_of_claims

PLAIN = ConsoleSettings()
PREFIXED = ConsoleSettings(user_prefix="sso:", groups_prefix="sso:")


def _tokens(**claims: Any) -> Tokens:
    return Tokens(id_token="x", refresh_token=None, expires=0.0, claims=claims)


def test_a_person_is_named_by_the_chosen_claims() -> None:
    found = person_of_claims(_tokens(email="alice@example.com", groups=["admins"]), PREFIXED)
    assert found.name == "sso:alice@example.com"
    assert found.groups == ("sso:admins", "system:authenticated")


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"email": ""},
        {"email": 5},
        {"email": "alice@example.com", "email_verified": False},
        {"email": "system:admin"},
        {"email": "system:serviceaccount:kube-system:replicaset-controller"},
    ],
)
def test_some_names_are_nobodys(claims: dict[str, Any]) -> None:
    with pytest.raises(NotSignedIn):
        person_of_claims(_tokens(**claims), PLAIN)


def test_a_provider_cannot_put_people_into_groups_of_kubernetes() -> None:
    found = person_of_claims(_tokens(email="eve@example.com", groups=["system:masters", "devs", 7]), PLAIN)
    assert found.groups == ("devs", "system:authenticated")
