"""Docker: one file, which is not ours alone."""

import json
from pathlib import Path

import pytest

from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from unit.agent.runtimes.nodes import DockerNode

HANDLER = WantedConfig(handler=RuntimeHandler("/opt/nvidia/runtime"))
DEFAULT = WantedConfig(handler=RuntimeHandler("/opt/nvidia/runtime"), default=True)


@pytest.mark.parametrize(("release", "text", "usable"), [
    ("27.5.1", None, False),
    ("28.2.0", None, True),
    ("28.2.0", '{"features": {"cdi": false}}', False),
    ("25.0.1", '{"features": {"cdi": true}}', True),
])  # fmt: skip
def test_cdi_is_on_by_release_unless_the_file_says_otherwise(
    tmp_path: Path, release: str, text: str | None, usable: bool
) -> None:
    assert DockerNode(tmp_path, text, release).config.inspect().cdi is usable


def test_nvidias_runtime_becomes_the_default_and_the_former_one_comes_back(tmp_path: Path) -> None:
    text = '{\n    "default-runtime": "runc",\n    "log-driver": "journald"\n}\n'
    node = DockerNode(tmp_path, text)

    node.config.set(DEFAULT)

    assert json.loads(node.file.read_text())["default-runtime"] == "nvidia"
    assert node.config.inspect().default_handler == "nvidia"
    assert node.config.set(DEFAULT).files == ()
    node.config.undo()
    assert node.file.read_text() == text


@pytest.mark.parametrize("indent", ["\t", "  ", "    "])
@pytest.mark.parametrize("end", ["", "\n"])
def test_order_and_indentation_stay(tmp_path: Path, indent: str, end: str) -> None:
    text = json.dumps(
        {"zeta": "ü", "runtimes": {"other": {"path": "/x"}}, "alpha": 1}, indent=indent, ensure_ascii=False
    )
    node = DockerNode(tmp_path, text + end)

    node.config.set(HANDLER)

    assert node.file.read_text() == end.join(
        [
            json.dumps(
                {
                    "zeta": "ü",
                    "runtimes": {"other": {"path": "/x"}, "nvidia": {"path": "/opt/nvidia/runtime"}},
                    "alpha": 1,
                    "features": {"cdi": True},
                    "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"],
                },
                indent=indent,
                ensure_ascii=False,
            ),
            "",
        ]
    )


@pytest.mark.parametrize("text", ['{"a": 1,}', "[]", '{"a": 1, "a": 2}', '{"features": 1}', '{"runtimes": []}'])
def test_a_file_that_cannot_be_changed_safely_is_kept(tmp_path: Path, text: str) -> None:
    node = DockerNode(tmp_path, text)

    with pytest.raises(RuntimeConfigError, match="left alone"):
        node.config.set(HANDLER)

    assert node.file.read_text() == text
