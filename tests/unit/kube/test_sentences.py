"""What others wrote is shown as plain text."""

import pytest

from gpu_control_plane.kube.sentences import one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("exceeded quota", "exceeded quota"),
        ("one\n  two\ttwo", "one two two"),
        ("\x1b[2J\x1b]0;title\x07 cleared", "[2J ]0;title cleared"),
        ("right\u202eto left", "right to left"),
        ("Größe «8»", "Größe «8»"),
    ],
)
def test_a_foreign_text_is_one_line_that_a_terminal_only_shows(text: str, shown: str) -> None:
    assert one_line(text) == shown
