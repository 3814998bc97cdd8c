"""The NVML library: loading, unloading, calls, and its error codes in words.

NVML has an error code for everything that a card does not support. `ask` turns those into None, so that callers treat
every capability as optional; `call` is for what must work.
"""

import _ctypes
import ctypes
import threading
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pynvml  # type: ignore[import-untyped]

from gpu_control_plane.agent.backends.interface import (
    BackendError,
    CardLost,
    DriverUnavailable,
    InUse,
    NoRoom,
    NotPermitted,
    NotSupported,
)

LIBRARY: Final = "libnvidia-ml.so.1"


class CardStuck(CardLost):
    """The card answers only that it has to be reset."""


# The binding is global to the process, so its users are counted: the last one to close it unloads the library.
_lock: Final = threading.RLock()
_users: Final[Counter[int]] = Counter()

_ERRORS: Final[dict[int, tuple[type[BackendError], str]]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: (DriverUnavailable, "The driver has been released."),
    pynvml.NVML_ERROR_NOT_SUPPORTED: (NotSupported, "The card or its driver cannot do that."),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        NotPermitted,
        "The driver refuses that to the agent. Run it as root, or give it the MIG configuration capability.",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        DriverUnavailable,
        "The NVIDIA kernel module is not loaded. Load it with `modprobe nvidia`, or install the driver.",
    ),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        DriverUnavailable,
        f"{LIBRARY} cannot be loaded. Install the NVIDIA driver, or tell the agent where its root is.",
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (NotSupported, "The driver is too old for that. Upgrade it."),
    pynvml.NVML_ERROR_GPU_IS_LOST: (CardLost, "The card has fallen off the bus. Restart the node."),
    pynvml.NVML_ERROR_RESET_REQUIRED: (CardStuck, "The card is stuck. Reset it."),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        DriverUnavailable,
        (
            "The driver's library and its kernel module are of different versions: it was upgraded without being"
            " reloaded. Reload the kernel module, or restart the node."
        ),
    ),
    pynvml.NVML_ERROR_IN_USE: (InUse, "A program still uses it. Stop that program first."),
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: (NoRoom, "The card has no place left for that."),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: (CardLost, "The driver no longer knows the card."),
}
_NOT_REPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_CORRUPTED_INFOROM,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NOT_READY,
        pynvml.NVML_ERROR_UNKNOWN,
    }
)
"""Error codes that mean that the card does not report a value; none of them means that it is broken."""


class Library:
    """NVML, with one call at a time: no call may be under way when the library is unloaded.

    `path` is for a library that the loader does not find by name. `nvml` is the Python binding.
    """

    def __init__(self, path: Path | None = None, nvml: ModuleType = pynvml) -> None:
        self.path = path
        self.nvml: Any = nvml
        self.is_open = False

    def open(self) -> None:
        """Load and initialise the library; raises DriverUnavailable."""
        with _lock:
            if self.is_open:
                return
            if self.path is not None and not _users[id(self.nvml)]:
                self._load(self.path)
            try:
                self.nvml.nvmlInit()
            except self.nvml.NVMLError as error:
                self._unload()
                raise translated(error) from error
            self.is_open = True
            _users[id(self.nvml)] += 1

    def close(self) -> None:
        """Shut the library down, which closes its device files, and unload it.

        If it stayed in memory, the agent would call the old library after an upgrade of the driver.
        """
        with _lock:
            if not self.is_open:
                return
            self.is_open = False
            _users[id(self.nvml)] -= 1
            try:
                self.nvml.nvmlShutdown()
            except self.nvml.NVMLError as error:
                raise translated(error) from error
            finally:
                self._unload()

    def call(self, function: str, *arguments: object) -> Any:
        """The result of a function; raises the errors of the backend interface."""
        try:
            return self._raw(function, *arguments)
        except self.nvml.NVMLError as error:
            raise translated(error) from error

    def ask(self, function: str, *arguments: object) -> Any:
        """The result of a function, or None if the card does not report it; raises only if the driver fails."""
        try:
            return self._raw(function, *arguments)
        except self.nvml.NVMLError as error:
            if error.value in _NOT_REPORTED:
                return None
            raise translated(error) from error

    def field(self, handle: object, field: int, scope: int = 0) -> float | None:
        """The value of one of NVML's numbered fields."""
        values = self.ask("nvmlDeviceGetFieldValues", handle, [(field, scope)])
        if values is None or values[0].nvmlReturn != self.nvml.NVML_SUCCESS:
            return None
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        return float(getattr(values[0].value, members[values[0].valueType]))

    def _raw(self, function: str, *arguments: object) -> Any:
        with _lock:
            if not self.is_open:
                raise DriverUnavailable("The driver has been released.")
            return getattr(self.nvml, function)(*arguments)

    def _load(self, path: Path) -> None:
        try:
            self.nvml.nvmlLib = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise DriverUnavailable(f"{path} cannot be loaded ({error}). Is the driver's root complete?") from error

    def _unload(self) -> None:
        if _users[id(self.nvml)]:
            return
        loaded, self.nvml.nvmlLib = self.nvml.nvmlLib, None
        self.nvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - it points into what is unloaded
        if loaded is not None:
            _ctypes.dlclose(loaded._handle)  # noqa: SLF001 - ctypes has no public way


def translated(error: Exception) -> BackendError:
    """NVML's error as one of the backend interface, in words."""
    code: int = getattr(error, "value", 0)
    kind, sentence = _ERRORS.get(code, (BackendError, f"The driver failed: {error} (NVML error {code})."))
    return kind(sentence)
