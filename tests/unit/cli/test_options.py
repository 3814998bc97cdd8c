"""Options that all commands share, completion, and what a command line that makes no sense is told."""

from pathlib import Path

import pytest

from gpu_control_plane.cli.completion import choices
from gpu_control_plane.cli.exit_codes import ExitCode
from gpu_control_plane.cli.main import run


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster can be asked."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nodes --as-group ops", "--as-group and --as-uid need --as"),
        ("pods -A -n team-a", "leave one of them out"),
        ("devices --pending --pool training", "A pending card is in no pool"),
        ("pods --idle --waiting", "leave --idle or --waiting out"),
        ("devices --state Broken", "'Broken' is not one of"),
        ("explain volume/x", "No such command 'volume'"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(line: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == ExitCode.USAGE
    assert words in capfd.readouterr().err


@pytest.mark.parametrize("line", ["nodes", "devices", "pools", "pods", "top --once", "status", "upgrade status"])
def test_without_a_cluster_a_command_says_so_in_a_sentence(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == ExitCode.ERROR
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "nowhere" in err


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["de"], "devices"),
        (["devices", "--pen"], "--pending"),
        (["devices", "--state", "fau"], "faulted"),
        (["explain", "po"], "pod"),
        (["upgrade", "pa"], "pause"),
        (["nodes", "-o", "y"], "yaml"),
    ],
)
def test_completion_knows_commands_options_and_choices(words: list[str], offered: str) -> None:
    assert offered in [choice.split("\t")[0] for choice in choices(words)]


@pytest.mark.parametrize("words", [["devices", "--pool", ""], ["explain", "pod", ""], ["pods", "-n", ""]])
def test_completion_of_names_is_silent_where_no_cluster_answers(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert choices(words) == []
    assert capfd.readouterr() == ("", "")


def test_completion_offers_the_contexts_of_the_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\ncontexts:\n- {name: prod, context: {cluster: a, user: b}}\n")
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert choices(["nodes", "--context", "p"]) == ["prod"]
