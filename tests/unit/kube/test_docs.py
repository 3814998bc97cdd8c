"""The page on the runtime shows the example that is tested and the metrics that exist."""

from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from gpu_control_plane.kube import Metrics

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "runtime.md").read_text()


def metric_rows() -> list[str]:
    rows = []
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            name = metric._name + ("_total" if metric._type == "counter" else "")
            labels = ", ".join(f"`{label}`" for label in metric._labelnames)
            rows.append(f"| `{name}` | {labels} | {metric._documentation} |")
    return rows


def test_the_page_shows_the_tested_example_word_for_word() -> None:
    example = (ROOT / "examples" / "namespace_quotas.py").read_text().strip()
    assert f"```python\n{example}\n```" in PAGE


def test_the_page_lists_every_metric_as_the_code_describes_it() -> None:
    table = "\n".join(metric_rows())
    assert table in PAGE, f"put this table into docs/runtime.md:\n{table}"
