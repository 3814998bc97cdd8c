"""Kubernetes' admission policies, of which we only look whether they are there."""

from typing import ClassVar

from gpu_control_plane.kube.objects import Object, Resource

_GROUP = "admissionregistration.k8s.io"


class ValidatingAdmissionPolicy(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        _GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
    )


class ValidatingAdmissionPolicyBinding(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        _GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False
    )
