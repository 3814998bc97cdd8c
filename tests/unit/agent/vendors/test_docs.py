"""The page on adding a vendor shows code that runs: the vendor of the test beside."""

import re
from pathlib import Path

import pytest

import gpu_control_plane

PAGE = (Path(__file__).parents[4] / "docs" / "adding-a-vendor.md").read_text()
TOY = (Path(__file__).parent / "second/acme/support.py").read_text()
SOURCE = Path(gpu_control_plane.__file__ or "").parent


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_every_piece_of_code_is_the_vendors_of_the_test(block: str) -> None:
    assert bare(block) in bare(TOY)


def bare(code: str) -> str:
    """Without what the formatter decides."""
    return re.sub(r"\s+", "", code)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:agent|api|inventory|rules|operator)/[\w/.]*)`", PAGE))))
def test_every_file_that_is_named_exists(path: str) -> None:
    assert (SOURCE / path).exists()
