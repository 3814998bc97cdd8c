"""The page on pools explains every reason why a card is pending, and every cause for which a pod waits."""

from pathlib import Path

from gpu_control_plane.pools.explain.explanation import Cause
from gpu_control_plane.pools.pending_reasons import PendingReason

PAGE = (Path(__file__).parents[3] / "docs" / "pools.md").read_text()


def test_the_page_explains_every_reason_as_the_code_does() -> None:
    table = "\n".join(f"| `{reason.value}` | {reason.because} |" for reason in PendingReason)
    assert table in PAGE, f"put this table into docs/pools.md:\n{table}"


def test_the_page_explains_every_cause_as_the_code_does() -> None:
    table = "\n".join(f"| `{cause.value}` | {cause.meaning.rstrip('.')} |" for cause in Cause)
    assert table in PAGE, f"put this table into docs/pools.md:\n{table}"
