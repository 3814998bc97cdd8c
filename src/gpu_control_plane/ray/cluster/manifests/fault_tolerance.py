"""Fault tolerance of the GCS: its state is kept beyond the life of the head, in Redis or on a volume."""

from typing import Any, Final

from gpu_control_plane.api.ray.cluster import Credential, GcsStorage
from gpu_control_plane.api.ray.names import Annotation, Label
from gpu_control_plane.ray.cluster.manifests.containers import (
    Part,
    add_mount,
    add_volume,
    default_env,
    entries,
    has_env,
    has_mount,
    put_env,
)
from gpu_control_plane.ray.cluster.manifests.context import ClusterContext, Manifest
from gpu_control_plane.ray.cluster.manifests.features import GcsBackend, gcs_backend
from gpu_control_plane.ray.names import gcs_claim_name
from gpu_control_plane.ray.owned import OwnedClaim
from gpu_control_plane.rules.ray.amounts import amount_of
from gpu_control_plane.rules.ray.fault_tolerance import (
    GCS_PATH,
    GCS_STORAGE_ENV,
    GCS_VOLUME,
    REDIS_ADDRESS_ENV,
    REDIS_PASSWORD_ENV,
    REDIS_USERNAME_ENV,
    ROCKSDB,
)

RETAIN: Final = "Retain"

_SIZE: Final = "1Gi"


def put_head_fault_tolerance(template: Part, ray: Part, context: ClusterContext) -> None:
    """Let the head keep the state of the GCS where the spec says, and tell those who read its annotations."""
    backend = gcs_backend(context.cluster)
    annotations = entries(entries(template, "metadata"), "annotations")
    annotations[Annotation.FT_ENABLED.value] = "false" if backend is GcsBackend.NOWHERE else "true"
    match backend:
        case GcsBackend.ROCKSDB:
            _keep_on_volume(template["spec"], ray, context)
        case GcsBackend.REDIS | GcsBackend.REDIS_OF_USER:
            prefix = storage_namespace(context)
            annotations[Annotation.EXTERNAL_STORAGE_NAMESPACE.value] = prefix
            default_env(ray, "RAY_external_storage_namespace", prefix)
            _reach_redis(ray, context)
        case GcsBackend.NOWHERE:
            pass


def put_worker_fault_tolerance(ray: Part, context: ClusterContext) -> None:
    """Let workers wait for a new head, which takes two minutes, instead of ending after one."""
    if gcs_backend(context.cluster) is not GcsBackend.NOWHERE:
        default_env(ray, "RAY_gcs_rpc_server_reconnect_timeout_s", "600")


def storage_namespace(context: ClusterContext) -> str:
    """The prefix of the cluster's keys in Redis."""
    options, metadata = context.cluster.spec.gcs_fault_tolerance_options, context.cluster.metadata
    named = options.external_storage_namespace if options is not None else ""
    return named or metadata.annotations.get(Annotation.EXTERNAL_STORAGE_NAMESPACE.value) or metadata.uid


def claim_of_user(context: ClusterContext) -> str:
    """The claim of the user for the backend rocksdb; empty if one is made."""
    options = context.cluster.spec.gcs_fault_tolerance_options
    return options.storage.claim_name if options is not None and options.storage is not None else ""


def gcs_claim(context: ClusterContext) -> Manifest | None:
    """The PersistentVolumeClaim of the backend rocksdb; None where none is made. It has no owner if it is kept when
    the cluster goes."""
    options = context.cluster.spec.gcs_fault_tolerance_options
    if options is None or gcs_backend(context.cluster) is not GcsBackend.ROCKSDB or claim_of_user(context):
        return None
    storage = options.storage or GcsStorage()
    spec: dict[str, Any] = {
        "accessModes": list(storage.access_modes) or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size or _SIZE}},
    }
    if storage.storage_class_name:
        spec["storageClassName"] = storage.storage_class_name
    owners = {} if storage.deletion_policy == RETAIN else {"ownerReferences": context.owner_references()}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": gcs_claim_name(context.cluster.name),
            "namespace": context.namespace,
            "labels": {Label.CLUSTER.value: context.cluster.name},
            **owners,
        },
        "spec": spec,
    }


def claim_differences(held: OwnedClaim, manifest: Manifest) -> list[str]:
    """What of a claim that is there is not as the spec says; a larger volume does no harm."""
    there, wanted = held.spec, manifest["spec"]
    size, asked = (spec.get("resources", {}).get("requests", {}).get("storage", 0) for spec in (there, wanted))
    found = []
    if (amount_of(size) or 0) < (amount_of(asked) or 0):
        found.append(f"it asks for {size}, and the spec for {asked}")
    found += [
        f"its {field} is {_listed(there.get(field))}, and that of the spec {_listed(wanted[field])}"
        for field in ("accessModes", "storageClassName")
        if field in wanted and there.get(field) != wanted[field]
    ]
    return found


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "none")


def _reach_redis(ray: Part, context: ClusterContext) -> None:
    options = context.cluster.spec.gcs_fault_tolerance_options
    if options is None:
        # The user has set the address, and maybe the password as a parameter: the clean-up needs it as a variable.
        password = context.cluster.spec.head_group_spec.ray_start_params.get("redis-password")
        if password is not None and not has_env(ray, REDIS_PASSWORD_ENV):
            put_env(ray, REDIS_PASSWORD_ENV, password)
        return
    put_env(ray, REDIS_ADDRESS_ENV, options.redis_address)
    _put_credential(ray, REDIS_USERNAME_ENV, options.redis_username)
    _put_credential(ray, REDIS_PASSWORD_ENV, options.redis_password)


def _put_credential(ray: Part, name: str, credential: Credential | None) -> None:
    if credential is not None:
        put_env(ray, name, credential.value, credential.value_from)


def _keep_on_volume(spec: Part, ray: Part, context: ClusterContext) -> None:
    default_env(ray, GCS_STORAGE_ENV, ROCKSDB)
    default_env(ray, f"{GCS_STORAGE_ENV}_path", GCS_PATH)
    options = context.cluster.spec.gcs_fault_tolerance_options
    folder = options.storage.sub_path if options is not None and options.storage is not None else ""
    if not has_mount(ray, name=GCS_VOLUME):
        add_mount(ray, GCS_VOLUME, GCS_PATH, **({"subPath": folder} if folder else {}))
    claim = claim_of_user(context) or gcs_claim_name(context.cluster.name)
    add_volume(spec, GCS_VOLUME, {"persistentVolumeClaim": {"claimName": claim}})
