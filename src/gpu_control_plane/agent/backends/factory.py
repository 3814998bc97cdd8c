"""Which backend a node gets: the driver's when it answers, else what the bus shows, with the reason."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpu_control_plane.agent.backends.host import Host
from gpu_control_plane.agent.backends.interface import Backend, DriverUnavailable
from gpu_control_plane.agent.backends.pci import PCIBackend
from gpu_control_plane.api.gpunodestate import Toolkit

type Search = Callable[[str, Sequence[Path]], Path | None]


def open_backend(
    roots: Sequence[Path] = (),
    *,
    find_library: Search | None = None,
    host: Host | None = None,
    dev: Path = Path("/dev"),
    proc: Path = Path("/proc"),
    toolkit: Toolkit | None = None,
) -> Backend:
    """An open backend; whoever asks closes it.

    The library is first tried under its name, as any program would, then where the search finds it under `roots`.
    """
    from gpu_control_plane.agent.backends.nvml import NVMLBackend  # noqa: PLC0415 - the binding is large

    reason = ""
    for library in _candidates(roots, find_library or _search()):
        backend = NVMLBackend(library, host=host, dev=dev, proc=proc, toolkit=toolkit)
        try:
            backend.open()
        except DriverUnavailable as error:
            reason = str(error)
        else:
            return backend
    return PCIBackend(reason, host=host)


def _candidates(roots: Sequence[Path], find_library: Search) -> Iterator[Path | None]:
    from gpu_control_plane.agent.backends.nvml.library import LIBRARY  # noqa: PLC0415

    yield None
    found = find_library(LIBRARY, roots)
    if found is not None:
        yield found


def _search() -> Search:
    from gpu_control_plane.agent.cdi.locate import find_driver_library  # noqa: PLC0415 - not needed by simulations

    return find_driver_library
