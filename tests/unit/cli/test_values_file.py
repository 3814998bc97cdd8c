"""What `kubectl gpu migrate values` and `migrate ray values` take for the values of a release: what Helm prints."""

from pathlib import Path

import pytest
import yaml

from gpu_control_plane.cli.main import run

COMMANDS = pytest.mark.parametrize("command", [["migrate"], ["migrate", "ray"]], ids=" ".join)


def translated(command: list[str], folder: Path, text: str) -> int:
    given = folder / "given.yaml"
    given.write_text(text)
    return run([*command, "values", str(given)])


@COMMANDS
@pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
def test_nothing_at_all_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str], text: str
) -> None:
    """A pipe holds it if the name of the release is wrong."""
    assert translated(command, tmp_path, text) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "given.yaml is empty" in err
    assert "a release that does not exist prints nothing" in err


@COMMANDS
@pytest.mark.parametrize("text", ["null\n", "{}\n", "USER-SUPPLIED VALUES:\nnull\n", "COMPUTED VALUES:\n{}\n"])
def test_a_release_without_values_has_the_defaults(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str], text: str
) -> None:
    assert translated(command, tmp_path, text) == 0
    assert isinstance(yaml.safe_load(capfd.readouterr().out), dict)


@pytest.mark.parametrize("heading", ["", "USER-SUPPLIED VALUES:\n", "COMPUTED VALUES:\n"])
def test_the_heading_of_helm_is_no_value(tmp_path: Path, capfd: pytest.CaptureFixture[str], heading: str) -> None:
    assert translated(["migrate", "ray"], tmp_path, f"{heading}watchNamespace: [team]\n") == 0
    out, err = capfd.readouterr()
    assert yaml.safe_load(out) == {"ray": {"enabled": True, "watchNamespace": ["team"]}}
    assert err == ""


def test_an_error_names_the_line_of_what_was_given(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert translated(["migrate", "ray"], tmp_path, "USER-SUPPLIED VALUES:\na: 1\nb: {\n") == 1
    assert "line 4" in capfd.readouterr().err
