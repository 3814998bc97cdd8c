"""Which backend a node gets: the driver's when it answers, else what the bus shows, with the reason."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpu_control_plane.agent.backends.interface import Backend, DriverUnavailable
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.agent.backends.sysfs import Sysfs
from gpu_control_plane.agent.driver.origin import origin_of
from gpu_control_plane.api.gpunodestate import DriverSource, Toolkit

type Search = Callable[[str, Sequence[Path]], Path | None]
type Whose = Callable[[Path], DriverSource | None]


def open_backend(
    roots: Sequence[Path] = (),
    *,
    whose: Whose | None = None,
    find_library: Search | None = None,
    sysfs: Sysfs | None = None,
    dev: Path = Path("/dev"),
    proc: Path = Path("/proc"),
    toolkit: Toolkit | None = None,
) -> Backend:
    """An open backend; whoever asks closes it.

    The library of each root is tried in turn: a host may have one left over from a driver that is not the loaded one.
    Last it is tried under its name, as any program would; whose driver that is cannot be seen. `whose` tells it from
    where a library lies.
    """
    from gpu_control_plane.agent.vendors.nvidia.nvml import NVMLBackend  # noqa: PLC0415 - the binding is large

    reason = ""
    for library in _candidates(roots, find_library or _search()):
        source = (whose or _whose)(library) if library else None
        backend = NVMLBackend(library, source=source, sysfs=sysfs, dev=dev, proc=proc, toolkit=toolkit)
        try:
            backend.open()
        except DriverUnavailable as error:
            reason = reason or str(error)
        else:
            return backend
    return PCIBackend(reason, sysfs=sysfs)


def _candidates(roots: Sequence[Path], find_library: Search) -> Iterator[Path | None]:
    from gpu_control_plane.agent.vendors.nvidia.nvml.library import LIBRARY  # noqa: PLC0415

    for root in roots:
        found = find_library(LIBRARY, (root,))
        if found is not None:
            yield found
    yield None


def _search() -> Search:
    from gpu_control_plane.agent.vendors.nvidia.driver_files import find_driver_library  # noqa: PLC0415 - not needed by simulations

    return find_driver_library


def _whose(library: Path) -> DriverSource | None:
    return origin_of(library).source
