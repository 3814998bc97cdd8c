"""Structured logs: one JSON object a line for machines, coloured lines for a terminal.

structlog takes a tenth of a second to import, for which a person would wait in vain: `get_logger` imports it when
something is logged.
"""

import logging
import sys
from typing import Any


def get_logger(component: str) -> "Logger":
    """A logger for a module that commands import, too."""
    return Logger(component)


class Logger:
    """structlog's logger of a component."""

    level_of_commands: str | None = None
    """In a command, which does not configure logs: what is told, on standard error. Its output is for programs."""

    def __init__(self, component: str) -> None:
        self._component = component

    def __getattr__(self, method: str) -> Any:
        import structlog  # noqa: PLC0415

        if Logger.level_of_commands is not None and not structlog.is_configured():
            configure_logs(Logger.level_of_commands)
        return getattr(structlog.get_logger(component=self._component), method)


def configure_logs(level: str = "info", *, human: bool | None = None) -> None:
    """Set up logging for a process; without `human`, a terminal decides."""
    import structlog  # noqa: PLC0415

    human = sys.stderr.isatty() if human is None else human
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if human
        else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not human:
        # Without local variables: they hold whole objects, and perhaps secrets.
        frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        processors.append(structlog.processors.ExceptionRenderer(frames))
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
