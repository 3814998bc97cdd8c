"""CUDA's driver API through libcuda: each call is checked, and everything that is allocated is freed.

It needs nothing but Python and the driver. Kernels are PTX, which the driver compiles for the card.
"""

import ctypes
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

LIBRARY: Final = "libcuda.so.1"
OUT_OF_MEMORY: Final = 2
ECC_UNCORRECTABLE: Final = 214

_COMPILER: Final = "libnvidia-ptxjitcompiler.so.*"
_BLOCKING_SYNC: Final = 4
"""CU_CTX_SCHED_BLOCKING_SYNC: a thread that waits for the card sleeps."""
_BUSY_CODES: Final = frozenset({46})
"""CUDA_ERROR_DEVICE_UNAVAILABLE: the card is in exclusive mode, and another process has it."""


class CudaFailure(Exception):
    """A call of the driver failed, or a kernel's result is wrong."""

    def __init__(self, stage: str, message: str, *, busy: bool = False, code: int = 0) -> None:
        super().__init__(message)
        self.stage = stage
        self.busy = busy
        self.code = code


class Cuda:
    """The driver's own API, each call checked."""

    def __init__(self, library: str) -> None:
        try:
            # The driver loads its compiler by name, which fails if the loader does not search the library's folder. A
            # compiler that is loaded already is found.
            self._compilers = [ctypes.CDLL(str(path)) for path in _compilers(Path(library))]
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise CudaFailure("load", f"{library} cannot be loaded ({error})") from error

    def call(self, name: str, *arguments: Any) -> None:
        code = self._function(name)(*arguments)
        if code:
            message = f"{name} answered {code}, {self._name_of(code)}"
            raise CudaFailure(name, message, busy=code in _BUSY_CODES, code=code)

    def _function(self, name: str) -> Callable[..., int]:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise CudaFailure(name, f"the driver is too old: its library has no {name}") from error
        function.restype = ctypes.c_int
        return function  # type: ignore[no-any-return] # a foreign function

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        return name.value.decode() if name.value else "an unknown error"


class Opened(NamedTuple):
    """A card with a CUDA context of this process."""

    device: ctypes.c_int
    name: str
    cuda_version: str


@contextmanager
def opened(cuda: Cuda, card: str, *, asleep: bool = False) -> Iterator[Opened]:
    """The card with this UUID (of a card or a MIG instance) or PCI address, in its primary context.

    With `asleep` a wait for the card uses no processor time, and takes some microseconds longer. The calls for a
    primary context are the same in every version of CUDA.
    """
    by_uuid = card.startswith(("GPU-", "MIG-"))
    if by_uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # no other card is even opened
    else:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    cuda.call("cuInit", 0)
    device, version = ctypes.c_int(), ctypes.c_int()
    cuda.call("cuDriverGetVersion", ctypes.byref(version))
    if by_uuid:
        cuda.call("cuDeviceGet", ctypes.byref(device), 0)
    else:
        cuda.call("cuDeviceGetByPCIBusId", ctypes.byref(device), card.encode())
    name = ctypes.create_string_buffer(128)
    cuda.call("cuDeviceGetName", name, len(name), device)
    if asleep:
        cuda.call("cuDevicePrimaryCtxSetFlags_v2", device, ctypes.c_uint(_BLOCKING_SYNC))
    context = ctypes.c_void_p()
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        cuda.call("cuCtxSetCurrent", context)
        shown = f"{version.value // 1000}.{version.value % 1000 // 10}"
        yield Opened(device, name.value.decode(errors="replace"), shown)
    finally:
        cuda.call("cuDevicePrimaryCtxRelease_v2", device)


def loaded(cuda: Cuda, cleanup: ExitStack, text: bytes, *names: bytes) -> list[ctypes.c_void_p]:
    """Kernels of a program in PTX, by their names."""
    module = ctypes.c_void_p()
    cuda.call("cuModuleLoadData", ctypes.byref(module), text)
    cleanup.callback(cuda.call, "cuModuleUnload", module)
    functions = [ctypes.c_void_p() for _ in names]
    for name, function in zip(names, functions, strict=True):
        cuda.call("cuModuleGetFunction", ctypes.byref(function), module, name)
    return functions


def allocated(cuda: Cuda, cleanup: ExitStack, size: int) -> ctypes.c_uint64:
    """Memory of the card, in bytes."""
    address = ctypes.c_uint64()
    cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    cleanup.callback(cuda.call, "cuMemFree_v2", address)
    return address


def launch(cuda: Cuda, function: ctypes.c_void_p, blocks: int, threads: int, *arguments: Any) -> None:
    """Run a kernel and wait for its end. The arguments are ctypes values, in the order and of the sizes it declares."""
    places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
    cuda.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, places, None)
    cuda.call("cuCtxSynchronize")


def send(cuda: Cuda, there: ctypes.c_uint64, values: "array[Any]") -> None:
    """Copy values to the card."""
    cuda.call("cuMemcpyHtoD_v2", there, _pointer(values), _size(values))


def fetch(cuda: Cuda, values: "array[Any]", there: ctypes.c_uint64) -> None:
    """Copy values from the card, over those that are here."""
    cuda.call("cuMemcpyDtoH_v2", _pointer(values), there, _size(values))


def first(failure: CudaFailure) -> CudaFailure:
    """The first failure: after it the driver refuses to clean up, too, which causes more."""
    while isinstance(failure.__context__, CudaFailure):
        failure = failure.__context__
    return failure


def _compilers(library: Path) -> list[Path]:
    """The compiler of PTX that belongs to a library with a known place."""
    return sorted(library.parent.glob(_COMPILER))[:1] if library.is_absolute() else []


def _pointer(values: "array[Any]") -> ctypes.c_void_p:
    return ctypes.c_void_p(values.buffer_info()[0])


def _size(values: "array[Any]") -> ctypes.c_size_t:
    return ctypes.c_size_t(len(values) * values.itemsize)
