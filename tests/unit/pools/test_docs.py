"""The page on pools explains every reason a card can wait for."""

from pathlib import Path

from gpu_control_plane.pools.words import Waits

PAGE = (Path(__file__).parents[3] / "docs" / "pools.md").read_text()


def test_the_page_explains_every_reason_as_the_code_does() -> None:
    table = "\n".join(f"| `{reason.value}` | {reason.because} |" for reason in Waits)
    assert table in PAGE, f"put this table into docs/pools.md:\n{table}"
