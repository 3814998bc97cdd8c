"""The NodeFeature CRD for clusters without Node Feature Discovery.

Agents publish NodeFeatures whether NFD is there or not, so the kind must exist. This one takes whatever NFD's takes;
where NFD has installed its own, that one serves.
"""

from typing import Annotated, ClassVar, Final

import msgspec

from gpu_control_plane.api import nodefeature
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.fields import about
from gpu_control_plane.kube.objects import Object, Resource


class Present(msgspec.Struct, frozen=True, gc=False):
    """A flag that is set; it has no value."""


class FlagFeature(msgspec.Struct, frozen=True, gc=False):
    """Names that are true of the node."""

    elements: Annotated[dict[str, Present], about("The names.")] = {}


class AttributeFeature(msgspec.Struct, frozen=True, gc=False):
    """Names and values that describe the node."""

    elements: Annotated[dict[str, str], about("Values by name.")] = {}


class Instance(msgspec.Struct, frozen=True, gc=False):
    """One of several things of a kind, such as a device."""

    attributes: Annotated[dict[str, str], about("Values by name.")] = {}


class InstanceFeature(msgspec.Struct, frozen=True, gc=False):
    """Several things of a kind."""

    elements: Annotated[tuple[Instance, ...], about("The things, in no particular order.")] = ()


class Features(msgspec.Struct, frozen=True, gc=False):
    """What was found on the node."""

    flags: Annotated[dict[str, FlagFeature], about("Features that are there or not.")] = {}
    attributes: Annotated[dict[str, AttributeFeature], about("Features with one set of values.")] = {}
    instances: Annotated[dict[str, InstanceFeature], about("Features that occur several times.")] = {}


class Spec(msgspec.Struct, frozen=True, gc=False):
    """What was found on the node, and labels for it."""

    features: Annotated[Features, about("What was found on the node.")] = Features()
    labels: Annotated[dict[str, str], about("Labels that Node Feature Discovery puts on the Node.")] = {}


class CompleteNodeFeature(Object, frozen=True, kw_only=True):
    """What a program found on a node."""

    resource: ClassVar[Resource] = nodefeature.NodeFeature.resource

    spec: Annotated[Spec, about("What was found on the node, and labels for it.")] = Spec()


DEFINITION: Final = Definition(kind=CompleteNodeFeature, status=False)
