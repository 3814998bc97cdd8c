"""GPUPool: a named set of cards, who may use them, and how they are handed out. People write the spec."""

import re
from datetime import timedelta
from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.allocation import Allocation, Profile, resource_suffix
from gpu_control_plane.api.devices import DeviceSelector
from gpu_control_plane.api.names import GROUP, VERSION
from gpu_control_plane.api.selectors import Selector
from gpu_control_plane.api.shapes import DNS_LABEL, Namespace, Part, ResourceName
from gpu_control_plane.kube.crd import AGE, Column, Definition
from gpu_control_plane.kube.objects import Condition, Object, Resource
from gpu_control_plane.kube.schema import OpenEnum, Rule, about

MAX_WORST_NODES: Final = 20
DEFAULT_TOPOLOGY_KEY: Final = "topology.kubernetes.io/zone"

_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
