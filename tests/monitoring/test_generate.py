"""What is committed is what the code says, and the page on metrics leaves nothing out."""

from pathlib import Path

import pytest
from monitoring.reference import chapters

from monitoring import generate


def test_committed_files_are_up_to_date() -> None:
    assert not generate.stale(), "run `make generate`"


def test_what_differs_is_told_and_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "CHART", tmp_path / "chart")
    monkeypatch.setattr(generate, "RULES", tmp_path / "chart/rules.yaml")
    monkeypatch.setattr(generate, "PAGES", tmp_path / "docs")
    assert generate.main(["--check"]) == 1
    assert generate.main() == 0
    assert generate.main(["--check"]) == 0
    leftover = tmp_path / "chart/dashboards/gpu-old.json"
    leftover.write_text("{}")
    assert generate.main(["--check"]) == 1
    generate.write()
    assert not leftover.exists()


def test_every_part_of_the_product_has_its_chapter() -> None:
    found = chapters()
    assert all(found.values())
    assert list(found) == ["Runtime", "Inventory", "Bootstrap", "Pools", "Operator", "Admission", "Agent"]


def test_a_metric_stands_in_one_chapter() -> None:
    """What every process has is told once."""
    controllers = [metric.name for title, found in chapters().items() if title != "Agent" for metric in found]
    assert len(set(controllers)) == len(controllers)


def test_counters_have_the_name_that_prometheus_sees() -> None:
    counters = [metric for found in chapters().values() for metric in found if metric.kind == "counter"]
    assert all(metric.name.endswith("_total") for metric in counters)


def test_histograms_and_labels_are_told() -> None:
    described = {metric.name: metric for found in chapters().values() for metric in found}
    assert described["kube_queue_seconds"].kind == "histogram"
    assert described["gpupool_phase"].labels == ("pool", "phase")
