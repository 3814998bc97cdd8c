"""The page on the metrics of cards lists what is served."""

from pathlib import Path

from gpu_control_plane.agent.exporter.catalogue import METRICS

PAGE = (Path(__file__).parents[4] / "docs" / "metrics-cards.md").read_text()


def test_the_page_lists_every_metric_as_the_code_describes_it() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `DCGM_FI_DEV") or "| counter |" in line]
    for metric in METRICS:
        assert f"| `{metric.name}` | {metric.kind} | {metric.help} |" in PAGE
    assert all(any(f"`{metric.name}`" in row for metric in METRICS) for row in rows)
