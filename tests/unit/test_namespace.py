"""The namespace has one source in the code; the chart and the pages for people have the same."""

import re
from pathlib import Path

import pytest

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "monitoring").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
NAMED = re.compile(r"\bd8-gpu-[a-z-]+")
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_the_chart_takes_no_other() -> None:
    names = (ROOT / "charts/gpu-control-plane/templates/_platform.tpl").read_text()
    assert f'ne .Release.Namespace "{NAMESPACE}"' in names
    assert set(NAMED.findall(names)) == {NAMESPACE}


def test_the_code_spells_it_once() -> None:
    spelled = [path for path in SOURCES if f'"{NAMESPACE}"' in path.read_text()]
    assert spelled == [ROOT / "src/gpu_control_plane/__init__.py"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_no_other(page: Path) -> None:
    assert set(NAMED.findall(page.read_text())) <= {NAMESPACE}
