"""Kinds, or fields of them, that only checks look at."""

from typing import ClassVar

import msgspec

from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicyBinding
from gpu_control_plane.api.node import Node, NodeStatus
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.objects import Object, Resource


class CheckedNodeStatus(NodeStatus, frozen=True, rename="camel", gc=False, kw_only=True):
    capacity: dict[str, str] = {}
    """With the resources of device plugins: what the kubelet lists."""


class CheckedNode(Node, frozen=True):
    """A Node with what its kubelet lists."""

    status: CheckedNodeStatus = CheckedNodeStatus()


class BindingSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()


class PolicyBinding(ValidatingAdmissionPolicyBinding, frozen=True):
    """A binding with what it has its policy do."""

    spec: BindingSpec = BindingSpec()


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    ready: bool | None = None
    """None counts as ready, as Kubernetes has it."""


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(Object, frozen=True):
    """Pods behind a Service."""

    resource: ClassVar[Resource] = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")

    endpoints: tuple[Endpoint, ...] | None = None

    @property
    def ready(self) -> int:
        return sum(endpoint.conditions.ready is not False for endpoint in self.endpoints or ())


class RuntimeClass(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False)


class CRDVersion(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    served: bool = False


class CRDSpec(msgspec.Struct, frozen=True, gc=False):
    versions: tuple[CRDVersion, ...] = ()


class VersionedCRD(CustomResourceDefinition, frozen=True, kw_only=True):
    """A CRD with the versions that it has."""

    spec: CRDSpec = CRDSpec()


class ReportMeta(Object, frozen=True):
    """The metadata of an agent's report: its content is inventory's business."""

    resource: ClassVar[Resource] = Resource("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", "nodefeatures")
