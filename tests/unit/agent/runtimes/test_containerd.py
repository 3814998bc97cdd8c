"""containerd, old and new."""

from pathlib import Path

import pytest
import tomlkit

from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from gpu_control_plane.api.gpunodestate import Injection, Toolkit
from unit.agent.runtimes.nodes import OLD_TABLE, TABLE, ContainerdNode

CDI = WantedConfig()
WITH_HANDLER = WantedConfig(handler=RuntimeHandler("/usr/bin/nvidia-container-runtime"))

OLD_FILE = f"""\
# kept by the platform team
version = 2
root = "/data/containerd"  # the big disk

[plugins]
  [plugins."{OLD_TABLE}"]
    sandbox_image = "pause:3.9"
    [plugins."{OLD_TABLE}".containerd]
      default_runtime_name = "runc"
      [plugins."{OLD_TABLE}".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        [plugins."{OLD_TABLE}".containerd.runtimes.runc.options]
          SystemdCgroup = true # as the kubelet has it

[metrics]
  address = "127.0.0.1:1338"
"""
NEW_FILE = f"""\
version = 3
[plugins.'{TABLE}']
  enable_cdi = false
  cdi_spec_dirs = ["/opt/cdi"]
[plugins.'{TABLE}'.containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


def test_a_runtime_that_can_do_everything_is_not_touched(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, release="2.4.2")

    assert node.config.set(CDI).files == ()
    assert node.files == {}
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(("release", "text"), [("1.7.27", OLD_FILE), ("2.1.4", NEW_FILE)])
def test_nvidias_runtime_becomes_the_default_and_keeps_the_options_of_the_former(
    tmp_path: Path, release: str, text: str
) -> None:
    node = ContainerdNode(tmp_path, release, text)
    wanted = WantedConfig(handler=RuntimeHandler("/usr/bin/nvidia-container-runtime"), default=True)

    node.config.set(wanted)

    assert node.config.verify(wanted) == ()
    assert node.config.inspect().default_handler == "nvidia"
    assert node.config.set(wanted).files == ()
    (table,) = node.dumped()["plugins"].values()
    assert table["containerd"]["runtimes"]["nvidia"]["options"]["SystemdCgroup"] is True
    node.config.undo()
    assert [content.decode() for content in node.files.values()] == [text]


def test_an_old_runtime_gets_cdi_in_its_main_file(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "1.7.27", OLD_FILE)
    assert node.config.verify(CDI) == ("containerd does not inject devices by CDI.",)

    change = node.config.set(CDI)

    assert change.files == (node.main,)
    assert change.restart_due
    assert node.config.verify(CDI) == ()
    table = tomlkit.parse(node.main.read_text()).unwrap()["plugins"][OLD_TABLE]
    assert table["enable_cdi"] is True
    assert table["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert table["sandbox_image"] == "pause:3.9"
    for comment in ("# kept by the platform team", "# the big disk", "# as the kubelet has it"):
        assert comment in node.main.read_text()


def test_a_new_runtime_gets_a_drop_in_and_one_import(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "2.1.4", NEW_FILE)

    change = node.config.set(CDI)

    assert change.files == (node.own, node.main)
    assert node.config.verify(CDI) == ()
    added = [line for line in node.main.read_text().splitlines() if line and line not in NEW_FILE.splitlines()]
    assert added == [f'imports = ["{node.own.with_suffix("")}*.toml"]']
    assert node.config.inspect().spec_dirs == ("/opt/cdi", "/etc/cdi", "/var/run/cdi")


def test_an_import_that_covers_the_drop_in_is_enough(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "2.1.4")
    node.main.write_text(f'imports = ["{node.own.parent}/*.toml"]\n{NEW_FILE}')

    assert node.config.set(CDI).files == (node.own,)


def test_another_drop_in_that_is_not_imported_takes_no_effect(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "2.1.4", NEW_FILE)
    node.own.parent.mkdir()
    (node.own.parent / "50-abandoned.toml").write_text(
        f"version = 3\n[plugins.'{TABLE}']\nmax_container_log_line_size = 1\n"
    )

    node.config.set(CDI)

    assert "max_container_log_line_size" not in node.dumped()["plugins"][TABLE]


@pytest.mark.parametrize(("release", "version"), [("1.7.27", 2), ("2.1.4", 3), ("2.3.0", 4)])
def test_a_missing_file_is_written_in_the_version_of_this_containerd(
    tmp_path: Path, release: str, version: int
) -> None:
    node = ContainerdNode(tmp_path, release)

    node.config.set(WITH_HANDLER)

    assert tomlkit.parse(node.main.read_text())["version"] == version
    assert node.config.verify(WITH_HANDLER) == ()
    assert node.config.undo().files
    assert node.files == {}


@pytest.mark.parametrize(("release", "main"), [("1.7.27", OLD_FILE), ("2.1.4", NEW_FILE), ("2.4.2", OLD_FILE)])
def test_a_handler_inherits_the_options_of_the_default_one(tmp_path: Path, release: str, main: str) -> None:
    node = ContainerdNode(tmp_path, release, main)

    node.config.set(WITH_HANDLER)

    (table,) = node.dumped()["plugins"].values()
    assert table["containerd"]["runtimes"]["nvidia"] == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": True},
    }
    assert node.config.inspect().handlers == ("nvidia", "runc")


def test_a_switch_that_is_gone_is_not_written(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "2.4.2", "version = 4\n")

    node.config.set(WITH_HANDLER)

    assert "enable_cdi" not in node.own.read_text()


@pytest.mark.parametrize(
    ("main", "reason"),
    [
        ("root = '/data'\n", "is of version 1, which cannot be configured here. Convert it with `containerd config"),
        ("version = 9\n", "is of version 9, which cannot be configured here. Known are 2, 3, 4."),
        ("version = 2\n[plugins\n", "cannot be understood and was left alone"),
        (f"version = 2\nplugins.'{OLD_TABLE}' = 7\n", "was left alone"),
    ],
)
def test_a_file_that_cannot_be_handled_is_refused_and_kept(tmp_path: Path, main: str, reason: str) -> None:
    node = ContainerdNode(tmp_path, "1.7.27", main)
    node.dumped = lambda: {"version": 2}  # type: ignore[method-assign]

    with pytest.raises(RuntimeConfigError, match=reason):
        node.config.set(CDI)

    assert node.files == {str(node.main): main.encode()}


def test_without_its_cri_plugin_nothing_is_usable(tmp_path: Path) -> None:
    node = ContainerdNode(tmp_path, "2.4.2")
    node.dumped = lambda: {"version": 4, "disabled_plugins": ["cri"]}  # type: ignore[method-assign]

    assert not node.config.inspect().cdi
    assert node.config.inspect().toolkit() is None


def test_the_inventory_is_told_how_cards_are_given(tmp_path: Path) -> None:
    assert ContainerdNode(tmp_path / "a", "2.4.2").config.inspect().toolkit() == Toolkit(
        injection=Injection.CDI, runtime="containerd://2.4.2"
    )

    legacy = ContainerdNode(
        tmp_path / "b", "1.7.27", f"version = 2\n[plugins.'{OLD_TABLE}'.containerd.runtimes.nvidia]\n"
    )
    assert legacy.config.inspect().toolkit() == Toolkit(injection=Injection.RUNTIME, runtime="containerd://1.7.27")
