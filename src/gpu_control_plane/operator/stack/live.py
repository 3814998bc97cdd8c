"""The stack's objects as the cluster has them: whole, so that another writer's change of any field is seen.

Each kind says which of its fields are content. What the API server fills in is known to `defaults`.
"""

from typing import Any, ClassVar, Final

import msgspec

from gpu_control_plane.kube.objects import Object, Resource
from gpu_control_plane.operator.stack.manifest import Manifest

_RBAC: Final = "rbac.authorization.k8s.io"


class Live(Object, frozen=True, kw_only=True):
    """An object of the stack."""

    content: ClassVar[tuple[str, ...]]
    """Its fields besides type and metadata, by their YAML names."""

    def body(self) -> Manifest:
        """Its content, by YAML names."""
        names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        found = {name: getattr(self, field) for name, field in names if name in self.content}
        return {name: value for name, value in found.items() if value is not None}


def content_changed(old: Live | None, new: Live | None) -> bool:
    """Whether an object was created, deleted or changed by any writer; changes of its status do not count."""
    return old is None or new is None or _without_status(old) != _without_status(new)


def _without_status(live: Live) -> tuple[Any, ...]:
    meta = live.metadata
    return meta.labels, meta.annotations, meta.owner_references, live.body()


class LiveServiceAccount(Live, frozen=True, kw_only=True):
    """Other controllers add Secrets to service accounts, so only their existence and their labels are compared."""

    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")
    content: ClassVar[tuple[str, ...]] = ()


class LiveConfigMap(Live, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")
    content: ClassVar[tuple[str, ...]] = ("data", "binaryData", "immutable")

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    immutable: bool | None = None


class LiveService(Live, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("", "v1", "Service", "services")
    content: ClassVar[tuple[str, ...]] = ("spec",)

    spec: dict[str, Any] | None = None


class LiveDaemonSet(Live, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("apps", "v1", "DaemonSet", "daemonsets")
    content: ClassVar[tuple[str, ...]] = ("spec",)

    spec: dict[str, Any] | None = None


class _Rules(Live, frozen=True, kw_only=True):
    content: ClassVar[tuple[str, ...]] = ("rules",)

    rules: list[Any] | None = None


class LiveRole(_Rules, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(_RBAC, "v1", "Role", "roles")


class LiveClusterRole(_Rules, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)


class _Binding(Live, frozen=True, kw_only=True):
    content: ClassVar[tuple[str, ...]] = ("roleRef", "subjects")

    role_ref: dict[str, Any] | None = None
    subjects: list[Any] | None = None


class LiveRoleBinding(_Binding, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(_RBAC, "v1", "RoleBinding", "rolebindings")


class LiveClusterRoleBinding(_Binding, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)


class LiveRuntimeClass(Live, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False)
    content: ClassVar[tuple[str, ...]] = ("handler", "overhead", "scheduling")

    handler: str | None = None
    overhead: dict[str, Any] | None = None
    scheduling: dict[str, Any] | None = None


class LiveServiceMonitor(Live, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")
    content: ClassVar[tuple[str, ...]] = ("spec",)

    spec: dict[str, Any] | None = None


class LivePrometheusRule(Live, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules")
    content: ClassVar[tuple[str, ...]] = ("spec",)

    spec: dict[str, Any] | None = None


class LiveSecurityContextConstraints(Live, frozen=True, kw_only=True):
    """OpenShift's kind for the permissions of pods. Fields that our manifests do not name are not compared."""

    resource: ClassVar[Resource] = Resource(
        "security.openshift.io",
        "v1",
        "SecurityContextConstraints",
        "securitycontextconstraints",
        namespaced=False,
    )
    content: ClassVar[tuple[str, ...]] = (
        *("users", "groups", "volumes", "seccompProfiles", "allowedUnsafeSysctls"),
        *("allowedCapabilities", "defaultAddCapabilities", "requiredDropCapabilities"),
        *("allowPrivilegedContainer", "allowPrivilegeEscalation", "readOnlyRootFilesystem"),
        *("allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts"),
        *("fsGroup", "runAsUser", "seLinuxContext", "supplementalGroups"),
    )

    users: list[Any] | None = None
    groups: list[Any] | None = None
    volumes: list[Any] | None = None
    seccomp_profiles: list[Any] | None = None
    allowed_unsafe_sysctls: list[Any] | None = None
    allowed_capabilities: list[Any] | None = None
    default_add_capabilities: list[Any] | None = None
    required_drop_capabilities: list[Any] | None = None
    allow_privileged_container: bool | None = None
    allow_privilege_escalation: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_host_dir_volume_plugin: bool | None = None
    allow_host_ipc: bool | None = msgspec.field(name="allowHostIPC", default=None)
    allow_host_network: bool | None = None
    allow_host_pid: bool | None = msgspec.field(name="allowHostPID", default=None)
    allow_host_ports: bool | None = None
    fs_group: dict[str, Any] | None = None
    run_as_user: dict[str, Any] | None = None
    se_linux_context: dict[str, Any] | None = None
    supplemental_groups: dict[str, Any] | None = None


CORE_KINDS: Final[tuple[type[Live], ...]] = (
    LiveServiceAccount,
    LiveConfigMap,
    LiveService,
    LiveDaemonSet,
    LiveRole,
    LiveClusterRole,
    LiveRoleBinding,
    LiveClusterRoleBinding,
    LiveRuntimeClass,
)
"""Kinds that every cluster has."""
OPTIONAL_KINDS: Final[tuple[type[Live], ...]] = (LiveServiceMonitor, LivePrometheusRule, LiveSecurityContextConstraints)
"""Kinds that only some clusters have."""
