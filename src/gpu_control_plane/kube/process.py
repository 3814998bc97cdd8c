"""A runtime as a process: logs, signals, and a failure printed as one sentence instead of a traceback."""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any

from gpu_control_plane.kube.errors import KubeError
from gpu_control_plane.kube.logs import configure_logs
from gpu_control_plane.kube.runtime import Runtime


def main(name: str, build: Callable[[Runtime], None], *, log_level: str = "info", **options: Any) -> int:
    """Make a `Runtime` with `options`, let `build` declare its parts, and run it until SIGTERM or SIGINT.

    Returns the exit code: 0 after an orderly end, 1 when it cannot run.
    """
    configure_logs(log_level)
    failure: KubeError | None = None
    try:
        runtime = Runtime(name, **options)
        build(runtime)
        asyncio.run(_until_signalled(runtime))
    except* KubeError as failed:
        failure = _first(failed)
    if failure is None:
        return 0
    print(f"error: {failure}", file=sys.stderr)  # noqa: T201 - for the person who started it
    return 1


async def _until_signalled(runtime: Runtime) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.stop)
    await runtime.run()


def _first(failed: BaseExceptionGroup[KubeError]) -> KubeError:
    error = failed.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
