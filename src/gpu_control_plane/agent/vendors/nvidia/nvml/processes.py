"""The processes on a card."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpu_control_plane.agent.backends.interface import Instance, Process
from gpu_control_plane.agent.vendors.nvidia.nvml.library import Library

_MIB: Final = 1 << 20
_RECENT_MICROSECONDS: Final = 5_000_000
"""Samples that are older say nothing about now."""


def processes(library: Library, handle: object, instances: Sequence[Instance], now: float) -> tuple[Process, ...]:
    """Compute and graphics processes in the order of PIDs. `now` is in seconds since 1970."""
    uuids = {instance.gpu_instance: instance.uuid for instance in instances}
    busy = _utilisation(library, handle, round(now * 1_000_000) - _RECENT_MICROSECONDS)
    found: dict[tuple[int, int], Process] = {}
    for kind in ("Compute", "Graphics"):
        for program in library.ask(f"nvmlDeviceGet{kind}RunningProcesses_v3", handle) or ():
            memory = program.usedGpuMemory
            found[program.pid, program.gpuInstanceId] = Process(
                pid=program.pid,
                memory_mib=None if memory is None else memory // _MIB,
                utilisation=busy.get(program.pid),
                instance=uuids.get(program.gpuInstanceId),
            )
    return tuple(found[key] for key in sorted(found))


def _utilisation(library: Library, handle: object, since: int) -> Mapping[int, int]:
    """The latest sample of each process, in percent of the card's time."""
    samples = library.ask("nvmlDeviceGetProcessUtilization", handle, since) or ()
    return {each.pid: min(each.smUtil, 100) for each in sorted(samples, key=lambda each: int(each.timeStamp))}
