"""Writes docs/settings.md from the code: every waiting time that can be set. `--check` only says whether it is stale.

A process is in `PROCESSES` with the groups of its settings; a controller joins by its name in `TIMING_GROUPS`.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.agent import timings as agent
from gpu_control_plane.api.generate import run
from gpu_control_plane.controller import TIMING_GROUPS, settings_type
from gpu_control_plane.settings import format_duration, waiting_times

PAGE: Final = Path("docs/settings.md")
CONTROLLER: Final = "controller"

PROCESSES: Final[Mapping[str, Mapping[str, type[msgspec.Struct]]]] = {
    CONTROLLER: {group: settings_type(group) for group in TIMING_GROUPS},
    "agent": agent.TIMING_GROUPS,
}
"""By process, which is also the section of the chart's values: the settings of each group."""

_OPENING: Final = """\
<!-- Generated from the settings in the code, do not edit: make generate -->

# Settings: waiting times

How long the programs wait before they conclude something. The defaults suit most clusters. To change one, set the
chart value; a duration is written like `90s`, `5m` or `1h30m`, and Helm refuses a name or a value that makes no sense:

```yaml
controller:
  timings:
    inventory: {nodeGracePeriod: 30m}
```

A process that is started by hand takes the same as an option: `--timing inventory.nodeGracePeriod=30m`.

The [alerts](alerts.md) are made for the defaults: with much longer times, raise their `for`, too.
"""


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join([_OPENING, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    for process, groups in PROCESSES.items():
        yield f"## The {process}\n"
        yield "| Chart value | Default | Meaning |\n|--|--|--|"
        for group, settings in groups.items():
            for one in waiting_times(settings):
                value = f"{process}.timings.{group}.{one.name}"
                yield f"| `{value}` | {format_duration(one.default)} | {one.meaning} |"
        yield ""


if __name__ == "__main__":
    sys.exit(run({Path.cwd() / PAGE: page()}, (), sys.argv[1:]))
