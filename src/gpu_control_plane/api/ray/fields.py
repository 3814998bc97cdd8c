"""What the kinds of Ray share: parts of pods in Kubernetes' own shape, which are kept whole, and maps of words."""

from typing import Annotated, Any, Final

import msgspec

from gpu_control_plane.api.ray import pod_schemas
from gpu_control_plane.api.ray.names import MANAGED_BY_MULTIKUEUE, MANAGED_BY_US
from gpu_control_plane.kube.fields import Rule, about

_ACRONYMS: Final = {"ip": "IP", "url": "URL", "yaml": "YAML", "gpu": "GPU", "cpu": "CPU", "tpu": "TPU"}


def wire_name(name: str) -> str:
    """`pod_ip` as `podIP`: how an attribute is called in YAML. KubeRay's words, with its acronyms."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


class RayPart(msgspec.Struct, frozen=True, rename=wire_name, kw_only=True, omit_defaults=True):
    """Base of everything inside an object of Ray."""


Words = dict[str, str]
PodPart = dict[str, Any]
"""A part of a pod in Kubernetes' own shape, which is passed on as it is."""

PodTemplate = Annotated[
    PodPart,
    msgspec.Meta(
        description="Template of the pod, in Kubernetes' own shape. Its first container runs Ray.",
        extra_json_schema=pod_schemas.TEMPLATE,
    ),
]
EnvVar = Annotated[PodPart, msgspec.Meta(extra_json_schema=pod_schemas.ENV_VAR)]
VolumeMount = Annotated[PodPart, msgspec.Meta(extra_json_schema=pod_schemas.VOLUME_MOUNT)]
WholeService = Annotated[PodPart, msgspec.Meta(extra_json_schema=pod_schemas.SERVICE)]
ResourceNeeds = Annotated[PodPart, msgspec.Meta(extra_json_schema=pod_schemas.RESOURCES)]
Quantity = Annotated[int | str, msgspec.Meta(extra_json_schema=pod_schemas.QUANTITY)]
ManagedBy = Annotated[
    str,
    about(
        "Who looks after it: ray.io/kuberay-operator, which is this operator, too, or kueue.x-k8s.io/multikueue where "
        "another cluster runs it. It cannot be changed.",
        Rule("self == oldSelf", "managedBy cannot be changed: make a new object."),
        enum=[MANAGED_BY_US, MANAGED_BY_MULTIKUEUE],
    ),
]
