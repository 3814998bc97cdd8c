"""Kinds by which tests give rights to people and programs."""

from typing import ClassVar

from gpu_control_plane.kube import Object, Resource

GROUP = "rbac.authorization.k8s.io"


class ServiceAccount(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")


class ClusterRole(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(GROUP, "v1", "ClusterRole", "clusterroles", namespaced=False)


class ClusterRoleBinding(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)


class RoleBinding(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(GROUP, "v1", "RoleBinding", "rolebindings")
