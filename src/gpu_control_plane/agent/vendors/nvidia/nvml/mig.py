"""MIG through NVML: the profiles of a card, its instances, and how they are created and destroyed.

An instance is a GPU instance with one compute instance that spans it. An agent that is killed between creating the two
leaves a GPU instance that no program can use or see; it is destroyed before the next instance is created.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gpu_control_plane.agent.backends.interface import BackendError, Instance, InUse, NoRoom, NotSupported
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library
from gpu_control_plane.agent.vendors.nvidia.nvml.mig_profiles import eighths, profile_name
from gpu_control_plane.api.gpudevice import MIGCapability, MIGProfile

_MIB: Final = 1 << 20


class _ProfileKind(msgspec.Struct, frozen=True):
    """A profile with the numbers by which NVML knows it."""

    id: int
    compute_slices: int
    profile: MIGProfile


def capability(library: Library, handle: object, total_mib: int) -> MIGCapability | None:
    """The MIG profiles of the card; None if it does not support MIG."""
    mode = library.ask("nvmlDeviceGetMigMode", handle)
    if mode is None:
        return None
    profiles = tuple(kind.profile for kind in _kinds(library, handle, total_mib))
    return MIGCapability.of(profiles, enabled=bool(mode[0]))


def instances(library: Library, handle: object) -> tuple[Instance, ...]:
    """The instances of the card, in the order of their places."""
    count: int = library.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    # The indexes of instances have gaps, hence a call for each.
    found = [library.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count)]
    if not any(found):
        return ()
    names = {kind.id: kind.profile.name for kind in _kinds(library, handle, _total_mib(library, handle))}
    listed = (_instance(library, handle, names, device) for device in found if device)
    return tuple(sorted(listed, key=lambda instance: (instance.start, instance.compute_instance)))


def device(library: Library, handle: object, instance: Instance) -> object:
    """The handle of the instance."""
    gpu_instance = library.call("nvmlDeviceGetGpuInstanceById", handle, instance.gpu_instance)
    number = instance.compute_instance
    compute_instance = library.call("nvmlGpuInstanceGetComputeInstanceById", gpu_instance, number)
    return library.call("nvmlComputeInstanceGetInfo", compute_instance).device


def set_mode(library: Library, handle: object, *, enabled: bool) -> None:
    """Switch MIG on or off. Where the card needs a reset for that, it still says its old mode afterwards."""
    _clear_unfinished(library, handle)
    status: int = library.call("nvmlDeviceSetMigMode", handle, int(enabled))
    if status == library.nvml.NVML_ERROR_IN_USE:
        raise InUse("A program still uses the card: its MIG mode cannot change.")


def create(library: Library, handle: object, name: str, start: int) -> Instance:
    kind = _kind(library, handle, name)
    if start not in kind.profile.starts:
        raise NoRoom(f"An instance {name} cannot start at slice {start}, only at one of {kind.profile.starts}.")
    _clear_unfinished(library, handle)
    placement = library.nvml.c_nvmlGpuInstancePlacement_t(start=start, size=kind.profile.slices)
    gpu_instance = library.call(
        "nvmlDeviceCreateGpuInstanceWithPlacement", handle, kind.id, library.nvml.byref(placement)
    )
    try:
        whole = _spanning(library, gpu_instance, kind.compute_slices)
        compute_instance = library.call("nvmlGpuInstanceCreateComputeInstance", gpu_instance, whole)
    except BackendError:
        library.call("nvmlGpuInstanceDestroy", gpu_instance)
        raise
    device = library.call("nvmlComputeInstanceGetInfo", compute_instance).device
    return _instance(library, handle, {kind.id: name}, device)


def destroy(library: Library, handle: object, instance: Instance) -> None:
    """In the reverse order of creation. Instance ids are used again: only the UUID identifies an instance."""
    if instance.uuid not in {each.uuid for each in instances(library, handle)}:
        raise BackendError(f"The card has no MIG instance {instance.uuid}.")
    gpu_instance = library.call("nvmlDeviceGetGpuInstanceById", handle, instance.gpu_instance)
    compute_instance = library.call("nvmlGpuInstanceGetComputeInstanceById", gpu_instance, instance.compute_instance)
    library.call("nvmlComputeInstanceDestroy", compute_instance)
    library.call("nvmlGpuInstanceDestroy", gpu_instance)


def _kinds(library: Library, handle: object, total_mib: int) -> list[_ProfileKind]:
    """Every profile of the card, smallest first."""
    kinds: dict[str, _ProfileKind] = {}
    for index in range(library.nvml.NVML_GPU_INSTANCE_PROFILE_COUNT if total_mib else 0):
        info = _profile_info(library, handle, index)
        if info is None:
            continue
        name = profile_name(index, info.sliceCount, info.memorySizeMB, total_mib)
        places = [(place.start, place.size) for place in _placements(library, handle, info.id)]
        profile = MIGProfile(
            name=name,
            # Some drivers count more instances than there are places.
            count=max(min(info.instanceCount, len(places) or info.instanceCount), 1),
            memory_mib=info.memorySizeMB,
            slices=places[0][1] if places else eighths(info.memorySizeMB, total_mib),
            starts=tuple(sorted(start for start, _ in places)),
        )
        kinds.setdefault(name, _ProfileKind(info.id, info.sliceCount, profile))
    return sorted(kinds.values(), key=lambda kind: (kind.compute_slices, kind.profile.memory_mib, kind.profile.name))


def _kind(library: Library, handle: object, name: str) -> _ProfileKind:
    for kind in _kinds(library, handle, _total_mib(library, handle)):
        if kind.profile.name == name:
            return kind
    raise NotSupported(f"The card has no MIG profile {name}.")


def _profile_info(library: Library, handle: object, index: int) -> Any:
    """Older drivers know only the first version of this call."""
    for version in (2, 1):
        info = library.ask("nvmlDeviceGetGpuInstanceProfileInfo", handle, index, version)
        if info is not None:
            return info
    return None


def _placements(library: Library, handle: object, profile_id: int) -> list[Any]:
    count = ctypes.c_uint()
    question = "nvmlDeviceGetGpuInstancePossiblePlacements"
    library.ask(question, handle, profile_id, None, ctypes.byref(count))
    places = (library.nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    if not count.value or library.ask(question, handle, profile_id, places, ctypes.byref(count)) is None:
        return []
    return list(places[: count.value])


def _total_mib(library: Library, handle: object) -> int:
    memory = library.ask("nvmlDeviceGetMemoryInfo", handle)
    return int(memory.total) // _MIB if memory else 0


def _instance(library: Library, handle: object, names: dict[int, str], device: object) -> Instance:
    number = library.call("nvmlDeviceGetGpuInstanceId", device)
    info = library.call("nvmlGpuInstanceGetInfo", library.call("nvmlDeviceGetGpuInstanceById", handle, number))
    return Instance(
        profile=names.get(info.profileId, f"profile {info.profileId}"),
        start=info.placement.start,
        size=info.placement.size,
        uuid=library.call("nvmlDeviceGetUUID", device),
        gpu_instance=number,
        compute_instance=library.call("nvmlDeviceGetComputeInstanceId", device),
    )


def _spanning(library: Library, gpu_instance: object, slices: int) -> int:
    """The number of the compute profile that takes all of a GPU instance."""
    shared = library.nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    found = [
        info
        for index in range(library.nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        if (info := library.ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", gpu_instance, index, shared))
        and info.sliceCount == slices
    ]
    if not found:
        raise NotSupported(f"The driver has no compute instance of {slices} slices.")
    return int(max(found, key=lambda info: int(info.multiprocessorCount)).id)


def _clear_unfinished(library: Library, handle: object) -> None:
    for gpu_instance in _gpu_instances(library, handle):
        if not any(_compute_instances(library, gpu_instance)):
            library.call("nvmlGpuInstanceDestroy", gpu_instance)


def _gpu_instances(library: Library, handle: object) -> Iterator[Any]:
    for kind in _kinds(library, handle, _total_mib(library, handle)):
        kept = (library.nvml.c_nvmlGpuInstance_t * kind.profile.count)()
        count = ctypes.c_uint(kind.profile.count)
        if library.ask("nvmlDeviceGetGpuInstances", handle, kind.id, kept, ctypes.byref(count)) is not None:
            yield from kept[: count.value]


def _compute_instances(library: Library, gpu_instance: object) -> Iterator[Any]:
    shared = library.nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for index in range(library.nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = library.ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", gpu_instance, index, shared)
        if info is None:
            continue
        kept = (library.nvml.c_nvmlComputeInstance_t * info.instanceCount)()
        count = ctypes.c_uint(info.instanceCount)
        # An error must not pass for an empty list: what looks unfinished is destroyed.
        library.call("nvmlGpuInstanceGetComputeInstances", gpu_instance, info.id, kept, ctypes.byref(count))
        yield from kept[: count.value]
