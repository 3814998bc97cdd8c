"""Which requests the API server asks our webhooks about. The chart and the local cluster install what is made here.

Every webhook is skipped when it does not answer: what must hold is held by the API server's own admission policies and
quotas, and the rest is said again by conditions and Events.
"""

from collections.abc import Callable
from typing import Final

from gpu_control_plane.api.names import GROUP, VERSION, Annotation
from gpu_control_plane.api.ray.names import GROUP as RAY_GROUP
from gpu_control_plane.api.ray.names import VERSION as RAY_VERSION
from gpu_control_plane.api.ray.names import Annotation as RayAnnotation
from gpu_control_plane.rules.admission_policy import API_VERSION, Manifest, asks_for_an_extended_resource

NAME: Final = "gpu-control-plane-webhook"
"""Of the Service, of the Secret with the certificates, and of both configurations."""
POOLS: Final = "/validate-gpupool"
PODS: Final = "/mutate-pod"
DEVICES: Final = "/mutate-gpudevice"
RAYS: Final = {
    "rayclusters": "/validate-raycluster",
    "rayjobs": "/validate-rayjob",
    "rayservices": "/validate-rayservice",
    "raycronjobs": "/validate-raycronjob",
}
"""By the plural of the kind."""
RAY_CLUSTERS: Final = "/mutate-raycluster"

_CHANGES_AN_APPROVAL: Final = {
    "name": "changes-an-approval",
    "expression": " != ".join(
        f"{side}.metadata.?annotations.orValue({{}})[?'{Annotation.ASSIGNMENT.value}'].orValue('')"
        for side in ("object", "oldObject")
    ),
}

# A finalizer is taken off and a status is written without a call; so are labels by which people only find things.
_IS_NOT_BEING_DELETED: Final = {
    "name": "is-not-being-deleted",
    "expression": "!has(object.metadata.deletionTimestamp)",
}
_CHANGES_WHAT_IS_ASKED_FOR: Final = {
    "name": "changes-what-is-asked-for",
    "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec"
    " || object.metadata.?annotations != oldObject.metadata.?annotations",
}
_IS_SCALED_BY_RAY: Final = {
    "name": "is-scaled-by-ray",
    "expression": "object.spec.?enableInTreeAutoscaling.orValue(false) == true"
    f" || '{RayAnnotation.FILLED_GPUS.value}' in object.metadata.?annotations.orValue({{}})",
}


def webhook_configurations(client_config: Callable[[str], Manifest]) -> list[Manifest]:
    """The configurations of both kinds; `client_config` says how a path is reached."""
    return [
        _configuration(
            "ValidatingWebhookConfiguration",
            {
                "name": f"gpupools.{GROUP}",
                "clientConfig": client_config(POOLS),
                "timeoutSeconds": 5,
                "rules": [_rule(GROUP, VERSION, "gpupools", "Cluster", ["CREATE", "UPDATE"])],
            },
            *(
                {
                    "name": f"{plural}.{GROUP}",
                    "clientConfig": client_config(path),
                    "timeoutSeconds": 2,
                    "rules": [_rule(RAY_GROUP, RAY_VERSION, plural, "Namespaced", ["CREATE", "UPDATE"])],
                    "matchConditions": [_IS_NOT_BEING_DELETED, _CHANGES_WHAT_IS_ASKED_FOR],
                }
                for plural, path in RAYS.items()
            ),
        ),
        _configuration(
            "MutatingWebhookConfiguration",
            {
                "name": f"pods.{GROUP}",
                "clientConfig": client_config(PODS),
                "timeoutSeconds": 2,
                "reinvocationPolicy": "IfNeeded",
                "rules": [_rule("", "v1", "pods", "Namespaced", ["CREATE"])],
                # Pods without such a resource cost no call: with each of them the API server would wait for a webhook
                # that is silent.
                "matchConditions": [asks_for_an_extended_resource("object.spec")],
            },
            {
                "name": f"gpudevices.{GROUP}",
                "clientConfig": client_config(DEVICES),
                "timeoutSeconds": 2,
                "reinvocationPolicy": "Never",
                "rules": [_rule(GROUP, VERSION, "gpudevices", "Cluster", ["UPDATE"])],
                "matchConditions": [_CHANGES_AN_APPROVAL],
            },
            {
                "name": f"rayclusters.{GROUP}",
                "clientConfig": client_config(RAY_CLUSTERS),
                "timeoutSeconds": 2,
                "reinvocationPolicy": "IfNeeded",
                "rules": [_rule(RAY_GROUP, RAY_VERSION, "rayclusters", "Namespaced", ["CREATE", "UPDATE"])],
                "matchConditions": [_IS_NOT_BEING_DELETED, _CHANGES_WHAT_IS_ASKED_FOR, _IS_SCALED_BY_RAY],
            },
        ),
    ]


def _configuration(kind: str, *webhooks: Manifest) -> Manifest:
    same = {
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
    }
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": [{**webhook, **same} for webhook in webhooks],
    }


def _rule(group: str, version: str, resource: str, scope: str, operations: list[str]) -> Manifest:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "scope": scope,
        "operations": operations,
    }
