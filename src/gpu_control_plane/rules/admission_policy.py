"""What our ValidatingAdmissionPolicies have in common: their manifests, and CEL that several of them ask."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

type Manifest = dict[str, Any]

API_VERSION: Final = "admissionregistration.k8s.io/v1"

IS_EXTENDED_RESOURCE: Final = "name.contains('/') && !name.contains('kubernetes.io/')"
"""Pools may have resource names of any domain but Kubernetes' own."""


def asks_for_an_extended_resource(pod_spec: str) -> Manifest:
    """The condition that spares pods which cannot ask for a card. Sidecars are init containers; ephemeral containers
    cannot ask for resources."""
    return {
        "name": "asks-for-an-extended-resource",
        "expression": f"({containers(pod_spec)}).exists(c, c.?resources.?limits.orValue({{}})"
        f".exists(name, {IS_EXTENDED_RESOURCE}))",
    }


def containers(pod_spec: str) -> str:
    """All containers of a pod that can ask for resources."""
    return f"{pod_spec}.containers + {pod_spec}.?initContainers.orValue([])"


def policy(
    name: str,
    *,
    rules: Sequence[Manifest],
    conditions: Sequence[Manifest],
    variables: Mapping[str, str],
    validations: Sequence[Manifest],
    **more: Any,
) -> Manifest:
    """A policy that refuses where it cannot decide. `more` are further fields of its spec."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            **more,
            "matchConstraints": {"resourceRules": list(rules)},
            "matchConditions": list(conditions),
            "variables": [{"name": name, "expression": expression} for name, expression in variables.items()],
            "validations": list(validations),
        },
    }


def binding(name: str, actions: Sequence[str], **more: Any) -> Manifest:
    """Has the policy of the same name act. `more` are further fields of its spec."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, **more, "validationActions": list(actions)},
    }


def validation(expression: str, message: str) -> Manifest:
    """Whoever asks is told the sentence that `message`, an expression, gives."""
    return {"expression": expression, "messageExpression": message, "reason": "Forbidden"}
