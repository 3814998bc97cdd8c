"""The default namespace has one source in the code, and is nothing but a default; pages for people name the same."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "monitoring").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
NAMED = re.compile(r"\bd8-gpu-[a-z-]+")
VARIABLE = "DEFAULT_NAMESPACE"
PAGES = sorted((ROOT / "docs").rglob("*.md"))


ANSWERS = {"__init__.py", "installation/own_namespace.py", "installation/policies.py"}
"""These name it otherwise: where it is spelled, where a cluster does not say, and for names that it is no part of."""


@pytest.mark.parametrize("source", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: path.stem)
def test_it_is_the_default_of_options_settings_and_arguments_alone(source: Path) -> None:
    """What a process does with it, it would do in the wrong namespace when it is told another."""
    if str(source.relative_to(ROOT / "src/gpu_control_plane")) in ANSWERS or VARIABLE not in source.read_text():
        return
    tree = ast.parse(source.read_text())
    used = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == VARIABLE}
    assert used <= {node.lineno for node in _defaults(tree)}


def _defaults(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="default"):
                yield node.value
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from (*node.args.defaults, *filter(None, node.args.kw_defaults))
            case ast.BoolOp(op=ast.Or()):
                yield node.values[-1]
            case ast.ClassDef():
                yield from (each.value for each in node.body if isinstance(each, ast.AnnAssign) and each.value)


def test_the_code_spells_it_once() -> None:
    spelled = [path for path in SOURCES if f'"{NAMESPACE}"' in path.read_text()]
    assert spelled == [ROOT / "src/gpu_control_plane/__init__.py"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_no_other(page: Path) -> None:
    assert set(NAMED.findall(page.read_text())) <= {NAMESPACE}
