"""Configuring the runtime when the agent starts. It stays when the agent ends: pods may run that need it."""

from collections.abc import Callable

import structlog

from gpu_control_plane.agent.runtimes.configure import RuntimeConfig
from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, Wanted

_log = structlog.get_logger(component="agent.runtimes")


def configure_at_start(config: RuntimeConfig, wanted: Wanted, restart: Callable[[], None] | None) -> None:
    """Write what is missing, and restart the runtime if that is due and allowed, which a `restart` means.

    Whatever fails is told and no reason to end: the agent has more to do, and its checks show what is missing.
    """
    try:
        change = config.set(wanted)
        restarted = restart is not None and config.restart(restart)
    except (RuntimeConfigError, OSError) as error:
        _log.error("the container runtime could not be configured", why=str(error))
        return
    written = [str(path) for path in change.files]
    _log.info("the container runtime is configured", written=written, restarted=restarted)
    if change.restart_due and not restarted:
        _log.warning("the container runtime may not know its configuration yet: restart it, or use --restart-runtime")
