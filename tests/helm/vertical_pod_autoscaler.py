"""The CRD of VerticalPodAutoscalers as far as the chart uses it, strict: a field that it does not have is an error."""

from typing import Any, Final

SERVED: Final = "autoscaling.k8s.io/v1/VerticalPodAutoscaler"


def _fields(*required: str, **fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required)}


def _enum(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


_TEXT: Final = {"type": "string"}
_QUANTITIES: Final = {
    "type": "object",
    "additionalProperties": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
}
_CONTAINER: Final = _fields(
    containerName=_TEXT,
    controlledValues=_enum("RequestsAndLimits", "RequestsOnly"),
    minAllowed=_QUANTITIES,
    maxAllowed=_QUANTITIES,
)
_SPEC: Final = _fields(
    "targetRef",
    targetRef=_fields("kind", "name", apiVersion=_TEXT, kind=_TEXT, name=_TEXT),
    updatePolicy=_fields(updateMode=_enum("Off", "Initial", "Recreate", "InPlaceOrRecreate", "Auto")),
    resourcePolicy=_fields(containerPolicies={"type": "array", "items": _CONTAINER}),
)

CRD: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "verticalpodautoscalers.autoscaling.k8s.io",
        # The API server wants to know who lets others define kinds under k8s.io.
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"},
    },
    "spec": {
        "group": "autoscaling.k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "VerticalPodAutoscaler",
            "listKind": "VerticalPodAutoscalerList",
            "plural": "verticalpodautoscalers",
            "singular": "verticalpodautoscaler",
        },
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _fields("spec", spec=_SPEC)}}
        ],
    },
}
