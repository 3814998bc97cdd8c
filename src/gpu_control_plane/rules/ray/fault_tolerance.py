"""What is wrong with where the state of the head is kept."""

from collections.abc import Mapping
from typing import Final

from gpu_control_plane.api.ray.cluster import GcsFaultTolerance, RayClusterSpec
from gpu_control_plane.api.ray.names import Annotation
from gpu_control_plane.rules.ray.problem import Faults
from gpu_control_plane.rules.ray.templates import PodSpec, pod_spec

ROCKSDB: Final = "rocksdb"
REDIS_ADDRESS_ENV: Final = "RAY_REDIS_ADDRESS"
REDIS_PASSWORD_ENV: Final = "REDIS_PASSWORD"  # noqa: S105 - the name of a variable
REDIS_USERNAME_ENV: Final = "REDIS_USERNAME"
GCS_STORAGE_ENV: Final = "RAY_gcs_storage"
GCS_VOLUME: Final = "gcs-storage"
GCS_PATH: Final = "/data/gcs"
_REDIS_FIELDS: Final = {
    "redis_address": "redisAddress",
    "redis_username": "redisUsername",
    "redis_password": "redisPassword",
    "external_storage_namespace": "externalStorageNamespace",
}


def storage_faults(spec: RayClusterSpec, path: str, annotations: Mapping[str, str]) -> Faults:
    """Of the options, of the older annotations, and of what the head says of Redis by itself."""
    options, head = spec.gcs_fault_tolerance_options, pod_spec(spec.head_group_spec.template)
    params, env = f"{path}.headGroupSpec.rayStartParams", f"{path}.headGroupSpec.template.spec.containers[0].env"
    held = head.env()
    if "redis-username" in spec.head_group_spec.ray_start_params:
        yield f"{params}.redis-username", "it is told by gcsFaultToleranceOptions.redisUsername: move it there"
    if REDIS_USERNAME_ENV in held:
        yield env, f"{REDIS_USERNAME_ENV} is told by gcsFaultToleranceOptions.redisUsername: move it there"
    if options is None:
        if REDIS_ADDRESS_ENV in held and annotations.get(Annotation.FT_ENABLED, "").lower() != "true":
            advice = "use gcsFaultToleranceOptions.redisAddress instead"
            yield env, f"{REDIS_ADDRESS_ENV} is set and fault tolerance is off: {advice}"
        return
    options_path = f"{path}.gcsFaultToleranceOptions"
    for annotation in (Annotation.FT_ENABLED, Annotation.EXTERNAL_STORAGE_NAMESPACE):
        if annotations.get(annotation, ""):
            yield "metadata.annotations", f"{annotation.value} is the older form of {options_path}: remove it"
    if "redis-password" in spec.head_group_spec.ray_start_params:
        yield f"{params}.redis-password", "it is told by gcsFaultToleranceOptions.redisPassword: move it there"
    for name, field in ((REDIS_PASSWORD_ENV, "redisPassword"), (REDIS_ADDRESS_ENV, "redisAddress")):
        if name in held:
            yield env, f"{name} is told by gcsFaultToleranceOptions.{field}: move it there"
    yield from (
        _rocksdb_faults(options, options_path) if options.backend == ROCKSDB else _redis_faults(options, options_path)
    )
    if options.backend == ROCKSDB:
        yield from _reserved_faults(head, f"{path}.headGroupSpec.template.spec")


def _redis_faults(options: GcsFaultTolerance, path: str) -> Faults:
    if options.storage is not None:
        yield f"{path}.storage", "Redis keeps the state, and needs no volume: remove it, or set backend to rocksdb"


def _rocksdb_faults(options: GcsFaultTolerance, path: str) -> Faults:
    for attribute, field in _REDIS_FIELDS.items():
        if getattr(options, attribute):
            yield f"{path}.{field}", "it is for Redis, and the backend is rocksdb: remove it"
    storage = options.storage
    if storage is None or not storage.claim_name:
        return
    for field, given in (
        ("size", storage.size is not None),
        ("storageClassName", bool(storage.storage_class_name)),
        ("accessModes", bool(storage.access_modes)),
    ):
        if given:
            yield f"{path}.storage.{field}", f"it belongs to the claim {storage.claim_name}, which is there: remove it"


def _reserved_faults(head: PodSpec, path: str) -> Faults:
    for name in head.env():
        if name.startswith(GCS_STORAGE_ENV):
            yield f"{path}.containers[0].env", f"{name} is set from gcsFaultToleranceOptions: remove it"
    if any(volume.name == GCS_VOLUME for volume in head.volumes):
        yield f"{path}.volumes", f"{GCS_VOLUME} is the name of the volume of the state: call yours something else"
    mounts = head.containers[0].volume_mounts if head.containers else ()
    for mount in mounts:
        if mount.name == GCS_VOLUME or mount.mount_path.rstrip("/") == GCS_PATH:
            yield (
                f"{path}.containers[0].volumeMounts",
                f"{GCS_PATH} is where the volume {GCS_VOLUME} of the state is mounted: take another path",
            )
