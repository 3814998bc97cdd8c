"""What the pods of these tests run: the validator's kernel check once, then kernels until it is ended.

Needs Python and a driver, nothing else. Prints the check's line of JSON, then `working` when the card is busy.
"""

import ctypes
import signal
import sys
from typing import Any, Final

from gpu_control_plane.agent.vendors.nvidia.cuda import kernel_check
from gpu_control_plane.agent.vendors.nvidia.cuda.libcuda import LIBRARY, Cuda

ELEMENTS: Final = 1 << 28
"""Of four bytes, twice: two GiB of the card's memory."""
_BLOCK: Final = 256


def main(card: str) -> int:
    # A first process ends by a signal only if it says so.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    code = kernel_check.main([card])
    sys.stdout.flush()
    if code:
        return code
    work(Cuda(LIBRARY))
    return 0


def work(driver: Cuda) -> None:
    """Keep the first visible card busy for ever."""
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuInit", 0)
    driver.call("cuDeviceGet", ctypes.byref(device), 0)
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxSetCurrent", context)
    driver.call("cuModuleLoadData", ctypes.byref(module), kernel_check.PTX)
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"saxpy")
    arrays = [ctypes.c_uint64(), ctypes.c_uint64()]
    for address in arrays:
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * ELEMENTS))
        driver.call("cuMemsetD32_v2", address, 0, ctypes.c_size_t(ELEMENTS))
    arguments: tuple[Any, ...] = (*arrays, ctypes.c_float(1.0), ctypes.c_uint32(ELEMENTS))
    places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
    sys.stdout.write("working\n")
    sys.stdout.flush()
    while True:
        driver.call("cuLaunchKernel", function, ELEMENTS // _BLOCK, 1, 1, _BLOCK, 1, 1, 0, None, places, None)
        driver.call("cuCtxSynchronize")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
