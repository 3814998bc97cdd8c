"""What the sections of a ClusterPolicy and an NVIDIADriver share: images, resources, environment, probes.

Every object keeps fields that it does not know. A manifest written for another release loses nothing here, and
`unknown.py` says which of its fields have no effect.
"""

from typing import Annotated, Any, ClassVar, Final

import msgspec

from gpu_control_plane.api.shapes import wire_name
from gpu_control_plane.kube.fields import PRESERVE_UNKNOWN, about

IMAGE_NAME: Final = r"[a-zA-Z0-9\-]+"
DURATION: Final = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
QUANTITY: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"


class Section(msgspec.Struct, frozen=True, rename=wire_name, kw_only=True, omit_defaults=True):
    """Base of every part of the two specs."""

    keeps_unknown: ClassVar[bool] = True


Labels = dict[str, str]
PodPart = dict[str, Any]
"""A part of a pod, in Kubernetes' own shape, which is passed on as it is."""


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}


Toleration = Annotated[
    PodPart,
    about(
        properties={
            "key": _text("Key of the taint; every taint if absent."),
            "operator": _text("Exists, or Equal, which also compares the value."),
            "value": _text("Value of the taint."),
            "effect": _text("NoSchedule, PreferNoSchedule or NoExecute; each of them if absent."),
            "tolerationSeconds": {
                "type": "integer",
                "format": "int64",
                "description": "How long NoExecute is borne; for ever if absent.",
            },
        },
        **PRESERVE_UNKNOWN,
    ),
]
"""Kubernetes' own shape as well, but its fields are checked when it is written: `value: true` without quotes is the
usual mistake, and DaemonSets with it would be refused later."""


_Quantity = Annotated[int | str, about(pattern=QUANTITY)]


class EnvVar(Section, frozen=True, kw_only=True):
    """An environment variable of a container."""

    name: Annotated[str, about("Name of the variable.")]
    value: Annotated[str, about("Its value.")] = ""


class Resources(Section, frozen=True, kw_only=True):
    """What a container may use and what is set aside for it."""

    limits: Annotated[dict[str, _Quantity], about("The most it may use.")] = {}
    requests: Annotated[dict[str, _Quantity], about("What is set aside for it.")] = {}


class ImageParts(Section, frozen=True, kw_only=True):
    """Which image is meant, and how it is pulled."""

    repository: Annotated[str, about("Registry and path before the image's name.")] = ""
    image: Annotated[str, about("Name of the image.")] = ""
    version: Annotated[str, about("Tag, or a digest that begins with sha256:.")] = ""
    image_pull_policy: Annotated[str, about("Always, Never or IfNotPresent; anything else means IfNotPresent.")] = ""
    image_pull_secrets: Annotated[tuple[str, ...], about("Names of Secrets with which the image is pulled.")] = ()


class Image(ImageParts, frozen=True, kw_only=True):
    """An image of an operand."""

    image: Annotated[str, about("Name of the image.", pattern=IMAGE_NAME)] = ""


class Operand(Image, frozen=True, kw_only=True):
    """What every operand with a container of its own can be told."""

    enabled: Annotated[bool | None, about("Whether the operand is deployed.")] = None
    resources: Annotated[Resources | None, about("Resources of its containers.")] = None
    args: Annotated[tuple[str, ...], about("Arguments of its main container.")] = ()
    env: Annotated[tuple[EnvVar, ...], about("Environment of its main container; it wins over ours.")] = ()
    host_network: Annotated[bool | None, about("Whether its pods use the network of the node.")] = None


class Env(Section, frozen=True, kw_only=True):
    """Environment for one step of the validator."""

    env: Annotated[tuple[EnvVar, ...], about("Variables.")] = ()


class Named(Section, frozen=True, kw_only=True):
    """A ConfigMap by its name, in the namespace of the operands."""

    name: Annotated[str, about("Name of the ConfigMap.")] = ""


_Count = Annotated[int | None, about(minimum=1, maximum=2**31 - 1)]


class Probe(Section, frozen=True, kw_only=True):
    """When the kubelet asks a container, and when it gives up."""

    initial_delay_seconds: Annotated[int | None, about("Seconds before the first question.", maximum=2**31 - 1)] = None
    timeout_seconds: Annotated[_Count, about("Seconds it may take to answer.")] = None
    period_seconds: Annotated[_Count, about("Seconds between two questions.")] = None
    success_threshold: Annotated[_Count, about("Good answers in a row that count as success.")] = None
    failure_threshold: Annotated[_Count, about("Bad answers in a row that count as failure.")] = None


class DriverManager(Image, frozen=True, kw_only=True):
    """What prepares a node before a driver is loaded or taken away."""

    env: Annotated[tuple[EnvVar, ...], about("Its environment.")] = ()


class RDMA(Section, frozen=True, kw_only=True):
    """GPUDirect RDMA."""

    enabled: Annotated[bool | None, about("Whether nvidia-peermem is loaded; no if absent.")] = None
    use_host_mofed: Annotated[bool | None, about("Whether the host brings the Mellanox driver; no if absent.")] = None


class KernelAddOn(Image, frozen=True, kw_only=True):
    """A kernel module that is loaded beside the driver: GPUDirect Storage or GDRCopy."""

    enabled: Annotated[bool | None, about("Whether it is loaded; no if absent.")] = None
    args: Annotated[tuple[str, ...], about("Arguments.", effect=False)] = ()
    env: Annotated[tuple[EnvVar, ...], about("Its environment.")] = ()


class ServiceMonitor(Section, frozen=True, kw_only=True):
    """How Prometheus scrapes an operand."""

    enabled: Annotated[bool | None, about("Whether a ServiceMonitor is made; no if absent.")] = None
    interval: Annotated[str, about("Time between two scrapes.", pattern=DURATION)] = ""
    scrape_timeout: Annotated[str, about("Time a scrape may take.", pattern=DURATION)] = ""
    honor_labels: Annotated[bool | None, about("Whether labels of the metrics win over those of the target.")] = None
    additional_labels: Annotated[Labels, about("Labels of the ServiceMonitor.")] = {}
    relabelings: Annotated[tuple[PodPart, ...], about("Relabelling rules, in Prometheus' own shape.")] = ()


def on(switch: bool | None, *, absent: bool) -> bool:
    """A switch with its meaning when it is not set."""
    return absent if switch is None else switch
