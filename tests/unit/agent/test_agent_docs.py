"""The page on the node agent says what the code says: options, metrics, reasons, numbers, and its own headings."""

import re
from collections.abc import Iterable
from pathlib import Path

import click
import pytest
from prometheus_client import CollectorRegistry

from gpu_control_plane.agent.command_line import agent
from gpu_control_plane.agent.kubelet.metrics import PluginMetrics
from gpu_control_plane.agent.node.hardware_watch import PROBE_SECONDS
from gpu_control_plane.agent.node.metrics import NodeMetrics
from gpu_control_plane.agent.runtimes.__main__ import runtimes
from gpu_control_plane.agent.step import RECOVERY
from gpu_control_plane.agent.step.advertising import UNUSED_CHECK_SECONDS, UNUSED_CHECKS
from gpu_control_plane.agent.step.pausing import PAUSED, prefixes
from gpu_control_plane.agent.validator.steps import DRIVER, PLUGIN, TOOLKIT
from gpu_control_plane.agent.vendors.nvidia import health
from gpu_control_plane.agent.vendors.nvidia.checks import CUDA, GDRCOPY, NVIDIA_FS
from gpu_control_plane.api.gpunodestate import Injection, ProblemReason

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "agent.md").read_text()
STEPS = (DRIVER, TOOLKIT, CUDA, PLUGIN, NVIDIA_FS, GDRCOPY)
OPTIONS = [option for option in agent.params if isinstance(option, click.Option)]


def rows(heading: str) -> list[str]:
    """The rows of the first table under a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = section.partition("|--|")[2].partition("\n\n")[0]
    return [line for line in table.splitlines() if line.startswith("| ")]


def option_row(option: click.Option) -> str:
    """The row of an option, as far as the code knows it."""
    text, _, said = (option.help or "").partition("  [default: ")
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"| {names} | {said.removesuffix(']') or default(option)} | {text}"


def default(option: click.Option) -> str:
    if option.is_flag:
        return "on" if option.default is True else "off"
    values = option.default if isinstance(option.default, tuple) else (option.default,)
    return ", ".join(f"`{value}`" for value in values if isinstance(value, str | Path)) or "none"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_page_explains_every_option(option: click.Option) -> None:
    expected = option_row(option)
    found = [row for row in rows("Options") if row.startswith(expected)]
    assert len(found) == 1, f"put this row into docs/agent.md: {expected} |"
    assert len(found[0].split(" | ")[2]) > len(" |"), "an option without help needs words on the page"


def test_the_page_explains_no_option_that_is_not_there() -> None:
    assert len(rows("Options")) == len(OPTIONS)


def test_the_page_lists_every_metric_as_the_code_describes_it() -> None:
    expected = []
    for group in (NodeMetrics, PluginMetrics):
        for metric in vars(group(CollectorRegistry())).values():
            name = f"{metric._name}_total" if metric._type == "counter" else metric._name
            labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "none"
            expected.append(f"| `{name}` | {labels} | {metric._documentation} |")
    assert rows("Metrics") == expected


@pytest.mark.parametrize("word", [*ProblemReason, *Injection, *STEPS, *runtimes.commands])
def test_the_page_explains_every_reason_injection_check_and_command(word: str) -> None:
    assert f"\n| `{word}` | " in PAGE


@pytest.mark.parametrize(
    "codes",
    [
        health.APPLICATION_XIDS,
        health.HARMLESS_XIDS,
        health.RESET_XIDS,
        health.NVLINK_XIDS,
        health.NODE_XIDS,
        {health.DOUBLE_BIT_ECC},
    ],
)
def test_the_page_has_the_classes_of_errors_as_the_code_has_them(codes: frozenset[int]) -> None:
    assert f"\n| {ranges(codes)} | " in PAGE


def ranges(codes: Iterable[int]) -> str:
    """`1-3, 7` for 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for code in sorted(codes):
        if runs and runs[-1][-1] == code - 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"probed every {PROBE_SECONDS:g} seconds" in PAGE
    assert f"after {RECOVERY.probes} good probes in a row over at least {RECOVERY.seconds:g} s" in PAGE
    again = f"within {RECOVERY.longest:g} s of its return waits twice as long each time, at most {RECOVERY.longest:g} s"
    assert again in PAGE.replace("\n", " ")
    assert f"{RECOVERY.hot} °C or more" in PAGE
    assert f"down to {RECOVERY.cool} °C" in PAGE
    assert UNUSED_CHECKS == 2
    assert f"two checks in a row, at least {UNUSED_CHECK_SECONDS:g} s apart" in PAGE


def test_the_page_names_the_labels_that_pause_the_agent() -> None:
    for words in (*prefixes(), PAUSED):
        assert f"`{words}`" in PAGE


def test_links_lead_somewhere() -> None:
    headings = {anchor(line) for line in PAGE.splitlines() if line.startswith("#")}
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        file, _, place = target.partition("#")
        assert (DOCS / file).exists() if file else place in headings, target


def anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^a-z0-9 _-]", "", heading.lstrip("# ").lower()).replace(" ", "-")
