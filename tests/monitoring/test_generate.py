"""What is committed is what the code says, and the page on metrics leaves nothing out."""

import re
from pathlib import Path
from typing import Final

import pytest
from monitoring.reference import Described, chapters

from monitoring import generate


def test_committed_files_are_up_to_date() -> None:
    assert not generate.stale(), "run `make generate`"


def test_a_stale_file_is_named_and_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    controllers = ["Inventory", "Bootstrap", "Pools", "Ray", "Operator", "Admission"]
    assert list(found) == ["Runtime", *controllers, "Console", "Agent"]


def test_a_metric_stands_in_one_chapter() -> None:
    """Metrics of every process are listed once."""
    controllers = [metric.name for title, found in chapters().items() if title != "Agent" for metric in found]
    assert len(set(controllers)) == len(controllers)


def test_counters_have_the_name_that_prometheus_sees() -> None:
    counters = [metric for found in chapters().values() for metric in found if metric.kind == "counter"]
    assert all(metric.name.endswith("_total") for metric in counters)


PROMISED: Final = {
    "gpu_inventory_devices_total",
    "gpupool_capacity_total",
    "gpu_device_unassigned_total",
    "gpu_device_reserved_total",
    "gpu_operator_gpu_nodes_total",
}
"""Gauges whose names users know from elsewhere, though `_total` is for counters."""


@pytest.mark.parametrize(
    "metric", [each for found in chapters().values() for each in found], ids=lambda each: each.name
)
def test_names_and_helps_follow_the_conventions(metric: Described) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter" or metric.name in PROMISED)
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")
    assert not re.search(r"_(ms|millis|milliseconds|minutes|hours|kb|mib|mb|gb|percent|fahrenheit)(_|$)", metric.name)
    assert metric.help.endswith(".")
    assert len(metric.help.split()) > 2, "that says no more than its name"
    assert "instance" not in metric.labels, "Prometheus adds this one itself"
    assert "job" not in metric.labels


def test_histograms_and_labels_are_listed() -> None:
    described = {metric.name: metric for found in chapters().values() for metric in found}
    assert described["kube_queue_seconds"].kind == "histogram"
    assert described["gpupool_phase"].labels == ("pool", "phase")
