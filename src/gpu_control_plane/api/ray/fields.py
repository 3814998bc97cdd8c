"""What the kinds of Ray share: parts of pods in Kubernetes' own shape, which are kept whole, and maps of words."""

from typing import Annotated, Any, Final

import msgspec

from gpu_control_plane.kube.fields import PRESERVE_UNKNOWN, about

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
    PodPart, about("Template of the pod, in Kubernetes' own shape. Its first container runs Ray.", **PRESERVE_UNKNOWN)
]
