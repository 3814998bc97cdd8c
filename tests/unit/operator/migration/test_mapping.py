"""The table of the guide is the table of the command."""

from pathlib import Path

from gpu_control_plane.migration.key_mapping import KeyMapping
from gpu_control_plane.operator.migration.chart_defaults import DEFAULTS
from gpu_control_plane.operator.migration.mapping import ROWS, mapping_table, row_for

GUIDE = Path(__file__).parents[4] / "docs" / "migration.md"
BEGIN, END = "<!-- mapping: begin -->\n", "<!-- mapping: end -->"


def test_the_guide_holds_the_table_of_the_command() -> None:
    """After a change, put the output of `mapping_table()` between the two marks."""
    assert GUIDE.read_text().partition(BEGIN)[2].partition(END)[0].strip() == mapping_table().strip()


def test_every_value_of_the_chart_is_decided() -> None:
    def leaves(tree: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        if not isinstance(tree, dict) or not tree:
            return [path]
        return [leaf for name, inner in tree.items() for leaf in leaves(inner, (*path, name))]

    assert [path for path in leaves(DEFAULTS, ()) if row_for(path) is None] == []


def test_no_key_has_two_rows_and_each_says_where_or_why() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.why if row.mapping is KeyMapping.WITHOUT_EFFECT else row.to


def test_the_longest_row_decides() -> None:
    inner = row_for(("driver", "upgradePolicy", "gpuPodDeletion", "force"))
    outer = row_for(("driver", "upgradePolicy", "drain", "force"))
    assert inner is not None
    assert outer is not None
    assert (inner.key, outer.key) == ("driver.upgradePolicy.gpuPodDeletion", "driver")
    assert row_for(("operator", "nonsense")) is None
