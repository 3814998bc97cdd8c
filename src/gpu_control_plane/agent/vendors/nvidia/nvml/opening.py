"""Which libnvidia-ml.so.1 the agent loads, if a node has several."""

from collections.abc import Iterator

from gpu_control_plane.agent.backends.interface import DriverUnavailable
from gpu_control_plane.agent.backends.sysfs import Sysfs
from gpu_control_plane.agent.driver.origin import DriverSearch
from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library
from gpu_control_plane.agent.vendors.nvidia.nvml.backend import NVMLBackend
from gpu_control_plane.agent.vendors.nvidia.nvml.library import LIBRARY


def open_nvml(search: DriverSearch, sysfs: Sysfs) -> NVMLBackend:
    """NVML, opened; raises DriverUnavailable with the reason of the first library, which is the one to repair.

    The library of each root is tried in turn: a host may have one left over from a driver that is not the loaded one.
    Last the loader is asked for it by name; whose driver it finds is not known.
    """
    refused: list[DriverUnavailable] = []
    for backend in candidates(search, sysfs):
        try:
            backend.open()
        except DriverUnavailable as error:
            refused.append(error)
        else:
            return backend
    raise refused[0]


def candidates(search: DriverSearch, sysfs: Sysfs) -> Iterator[NVMLBackend]:
    """The libraries to try, in this order."""
    for root in search.roots:
        library = find_driver_library(LIBRARY, (root,))
        if library is not None:
            yield NVMLBackend(library, source=search.origin_of(library).source, sysfs=sysfs)
    yield NVMLBackend(sysfs=sysfs)
