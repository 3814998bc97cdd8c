"""An alert: when it fires, its text, and which Events and log lines report the same.

Each has a runbook in `docs/runbooks`, and the reasons of the Events about the same thing. A test raises what each alert
is about and sees its Events and log lines, so that an alert, an Event and a runbook cannot drift apart.
"""

import enum
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.kube.fields import OpenEnum

RUNBOOKS: Final = "docs/runbooks"
LINGER: Final = "5m"
"""How long an alert goes on after its expression has ended, so that it does not end and fire again when a process is
replaced, another replica leads or a scrape is missed."""


class Severity(enum.StrEnum):
    """How soon a person has to look."""

    CRITICAL = "critical"
    """Now: work is lost, or soon will be."""
    WARNING = "warning"
    """Today: something is out of service, and the rest goes on."""
    INFO = "info"
    """When there is time: nothing of ours is broken."""


class LogLine(msgspec.Struct, frozen=True):
    """A log line about the same thing."""

    module: str
    """Which module writes it, such as `agent.node.watch`."""
    event: str
    """What it says."""


EVENT_RECORDED: Final = LogLine("kube.events", "Event recorded")
"""The log line with the reason of every Event that warns: Events expire within hours."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One rule, with its ties to what the product writes elsewhere."""

    name: str
    expr: str
    hold: str
    """How long the expression has to be true, as Prometheus writes durations."""
    severity: Severity
    summary: str
    description: str
    """What it means and what to do first; the runbook has the rest."""
    events: tuple[OpenEnum, ...]
    """Reasons of the Events about the same thing."""
    told_afterwards: str = ""
    """Who writes the Event later, where nobody is there to write it at the time."""
    log: LogLine | None = None
    """A line of its own, beside the one with the reason of the Event."""

    @property
    def logs(self) -> tuple[LogLine, ...]:
        """Every log line about it."""
        return (EVENT_RECORDED, *((self.log,) if self.log else ()))

    @property
    def runbook(self) -> str:
        return f"{RUNBOOKS}/{self.name}.md"

    def rule(self) -> dict[str, Any]:
        """As Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.hold,
            "keep_firing_for": LINGER,
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": self.runbook,
            },
        }


class Group(msgspec.Struct, frozen=True):
    """Alerts on one subject; Prometheus evaluates them together."""

    name: str
    alerts: Sequence[Alert]


def rules(groups: Sequence[Group]) -> dict[str, Any]:
    """A file of rules."""
    return {
        "groups": [
            {"name": f"gpu-control-plane.{group.name}", "rules": [alert.rule() for alert in group.alerts]}
            for group in groups
        ]
    }
