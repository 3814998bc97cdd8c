"""CRI-O: everything in a file of our own."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.runtimes.interface import RuntimeConfigError, RuntimeHandler, WantedConfig
from gpu_control_plane.api.gpunodestate import Injection, Toolkit
from unit.agent.runtimes.nodes import CrioNode

WANTED = WantedConfig(spec_dirs=("/etc/cdi", "/var/run/cdi", "/opt/cdi"), handler=RuntimeHandler("/opt/nvidia/runtime"))


def test_cdi_works_out_of_the_box(tmp_path: Path) -> None:
    node = CrioNode(tmp_path)

    assert node.config.set(WantedConfig()).files == ()
    assert node.config.inspect().toolkit() == Toolkit(injection=Injection.CDI, runtime="cri-o://1.33.2")


def test_a_drop_in_says_what_is_missing_and_keeps_what_others_said(tmp_path: Path) -> None:
    node = CrioNode(tmp_path, **{"10-theirs.conf": '[crio.runtime]\ncdi_spec_dirs = ["/srv/cdi"]\n'})

    assert node.config.set(WANTED).files == (node.own,)

    assert node.config.inspect().spec_dirs == ("/srv/cdi", "/etc/cdi", "/var/run/cdi", "/opt/cdi")
    assert node.own.read_text() == (
        "[crio.runtime]\n"
        'cdi_spec_dirs = ["/srv/cdi", "/etc/cdi", "/var/run/cdi", "/opt/cdi"]\n'
        "\n"
        "[crio.runtime.runtimes.nvidia]\n"
        'runtime_path = "/opt/nvidia/runtime"\n'
        'runtime_type = "oci"\n'
    )


def test_nvidias_runtime_becomes_the_default(tmp_path: Path) -> None:
    node = CrioNode(tmp_path, main='[crio.runtime]\ndefault_runtime = "crun"\n')
    wanted = WantedConfig(handler=RuntimeHandler("/opt/nvidia/runtime"), default=True)

    assert node.config.verify(wanted)[-1] == "cri-o does not use the runtime nvidia by default."
    node.config.set(wanted)

    assert node.config.verify(wanted) == ()
    assert 'default_runtime = "nvidia"' in node.own.read_text()
    node.config.undo()
    assert node.config.inspect().default_handler == "crun"


def test_a_broken_drop_in_of_others_stops_us_before_anything_is_written(tmp_path: Path) -> None:
    node = CrioNode(tmp_path, **{"10-theirs.conf": "[crio.runtime"})

    with pytest.raises(RuntimeConfigError, match=r"10-theirs\.conf cannot be understood"):
        node.config.set(WANTED)
    assert not node.own.exists()
