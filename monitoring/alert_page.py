"""The page that lists all alerts, with the Events and log lines about the same."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from monitoring.alert import Alert, Group

from gpu_control_plane.api.markdown import code, table

_INTRODUCTION = """# Alerts

They come with the chart (`monitoring.prometheusRules.enabled`, see [monitoring](monitoring.md)). Each has a runbook:
what causes it, what to look at, what to do. `critical` is for now, `warning` for today, `info` for when there is time.
`d8-gpu-operator` in the runbooks stands for the namespace of your release; alerts themselves name the right one.

Events expire within hours. The log of the process that wrote them keeps them, under the same reason, in lines with
`Event recorded`; that is the controller, and the node's agent for what it sees of its cards:

```
kubectl -n d8-gpu-operator logs -l app.kubernetes.io/component=controller --prefix --tail=-1 | grep "Event recorded"
```
"""


def alert_page(groups: Sequence[Group], header: str) -> str:
    lines = [f"<!-- {header} -->\n", _INTRODUCTION]
    for group in groups:
        lines += [f"## {group.name.capitalize()}\n", *_rows(group.alerts)]
    return "\n".join(lines).rstrip() + "\n"


def _rows(alerts: Sequence[Alert]) -> Iterator[str]:
    rows = (
        (f"[{alert.name}]({_link(alert)})", alert.severity.value, alert.hold, _elsewhere(alert)) for alert in alerts
    )
    yield from table(("Alert", "Severity", "After", "Events and logs"), rows)


def _link(alert: Alert) -> str:
    return str(PurePosixPath(alert.runbook).relative_to("docs"))


def _elsewhere(alert: Alert) -> str:
    events = f"Event {code(*(reason.value for reason in alert.events))}"
    afterwards = f" ({alert.told_afterwards})" if alert.told_afterwards else ""
    log = f"log `{alert.log.event}`" if alert.log else ""
    return "; ".join(filter(None, (events + afterwards, log)))
