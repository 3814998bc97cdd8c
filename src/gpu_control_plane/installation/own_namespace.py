"""In which namespace our programs run, for commands of people.

A tenant may label and name objects of his own as he likes, so none of those is asked. The ClusterRoleBinding of our
controller has one name in every cluster, and only who may grant every right can write it: its subject is the answer.
"""

from typing import ClassVar, Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import Forbidden, NotFound
from gpu_control_plane.kube.objects import Object, Resource

CONTROLLER_BINDING: Final = "gpu-control-plane:controller"
"""The ClusterRoleBinding of our controller."""
_CONTROLLER: Final = "gpu-control-plane-controller"


class Subject(msgspec.Struct, frozen=True):
    kind: str
    name: str
    namespace: str | None = None


class ClusterRoleBinding(Object, frozen=True):
    resource: ClassVar[Resource] = Resource(
        "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
    )

    subjects: tuple[Subject, ...] = ()


async def own_namespace(client: Client) -> str:
    """The namespace of our release. The default where there is none, as with a local cluster, or where it may not be
    read."""
    try:
        binding = await client.get(ClusterRoleBinding, CONTROLLER_BINDING)
    except (Forbidden, NotFound):
        return DEFAULT_NAMESPACE
    accounts = (one for one in binding.subjects if (one.kind, one.name) == ("ServiceAccount", _CONTROLLER))
    return next((one.namespace for one in accounts if one.namespace), DEFAULT_NAMESPACE)
