"""Scripts of the operands for containers: a shell understands them, and they do what they should."""

import os
import subprocess
from pathlib import Path

import pytest

from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest, assets
from unit.operator.stack.container_builders import STATES


def _scripts() -> list[tuple[str, str]]:
    found = []
    for state in STATES:
        for manifest in assets(state.name):
            if manifest["kind"] == "DaemonSet":
                found += [
                    (state.name, script)
                    for held in DaemonSetManifest(manifest).containers()
                    for script in _in(held.manifest)
                ]
            if manifest["kind"] == "ConfigMap":
                found += [(state.name, text) for key, text in manifest["data"].items() if key.endswith(".sh")]
    return found


def _in(container: Manifest) -> list[str]:
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    own = container["args"] if container.get("command", [])[:2] == ["sh", "-c"] else []
    return [*own[:1], *(hook[2:3] if hook[:2] == ["sh", "-c"] else [])]


@pytest.mark.parametrize(("where", "script"), _scripts())
def test_a_shell_understands_every_script(where: str, script: str) -> None:
    done = subprocess.run(["/bin/sh", "-n", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}: {done.stderr}"


class Host:
    """A folder in the place of a node, in which entrypoints run."""

    def __init__(self, folder: Path, *, modules: str = "", ready: str = "IS_HOST_DRIVER=true\n") -> None:
        self.folder = folder
        (folder / "modules").write_text(modules)
        (folder / "driver-ready").write_text(ready)
        for program in ("nvidia-toolkit", "nvidia-device-plugin", "nvidia-mig-manager"):
            (folder / program).write_text('#!/bin/sh\necho "program=${0##*/}" "args=$*"\nenv\n')
            (folder / program).chmod(0o755)
        (folder / "sleep").write_text(f"#!/bin/sh\nmv {folder}/later {folder}/driver-ready 2>/dev/null || :\n")
        (folder / "sleep").chmod(0o755)

    def run(self, state: str, *args: str, **env: str) -> dict[str, str]:
        (script,) = [
            held["data"]["entrypoint.sh"]
            for held in assets(state)
            if held["kind"] == "ConfigMap" and "entrypoint.sh" in held["data"]
        ]
        here = script.replace("/run/nvidia/validations", str(self.folder)).replace("/proc", str(self.folder))
        (self.folder / "entrypoint.sh").write_text(here)
        done = subprocess.run(
            ["/bin/sh", str(self.folder / "entrypoint.sh"), *args],
            env={"PATH": f"{self.folder}:{os.environ['PATH']}", **env},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        self.said = done.stdout
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


ENTRYPOINTS = {
    "state-container-toolkit": "nvidia-toolkit",
    "state-device-plugin": "nvidia-device-plugin",
    "state-mig-manager": "nvidia-mig-manager",
}


@pytest.mark.parametrize("state", ENTRYPOINTS)
def test_the_program_starts_with_what_is_known_of_the_driver(state: str, tmp_path: Path) -> None:
    host = Host(tmp_path, ready="IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n")
    assert host.run(state)["NVIDIA_DRIVER_ROOT"] == "/run/nvidia/driver"
    assert f"program={ENTRYPOINTS[state]}" in host.said


@pytest.mark.parametrize("state", ENTRYPOINTS)
def test_it_starts_only_when_the_driver_is_ready(state: str, tmp_path: Path) -> None:
    host = Host(tmp_path)
    (tmp_path / "driver-ready").rename(tmp_path / "later")
    host.run(state)
    assert host.said.startswith("the driver is not ready yet\n")
    assert f"program={ENTRYPOINTS[state]}" in host.said


@pytest.mark.parametrize("state", ["state-device-plugin", "state-mig-manager"])
def test_arguments_are_passed_on(state: str, tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(state, "--loud", "a b")
    assert "args=--loud a b" in host.said


@pytest.mark.parametrize(
    ("modules", "given", "expected"),
    [
        ("nvidia 1 0\n", {}, (None, None, None)),
        ("gdrdrv 1 0\n", {}, ("true", None, None)),
        ("nvidia 1 0\nnvidia_fs 1 0\n", {}, (None, "true", "true")),
        ("gdrdrv 1 0\nnvidia_fs 1 0\n", {"GDRCOPY_ENABLED": "false"}, ("false", "true", "true")),
        ("nvidia_fs 1 0\n", {"MOFED_ENABLED": "false"}, (None, "true", "false")),
        ("nvidia_fs 1 0\n", {"GDS_ENABLED": "false"}, (None, "false", "true")),
        ("nvidia_fs_other 1 0\n", {}, (None, None, None)),
    ],
)
def test_the_plugin_offers_what_the_kernel_has_loaded(
    tmp_path: Path, modules: str, given: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    told = Host(tmp_path, modules=modules).run("state-device-plugin", **given)
    assert tuple(told.get(name) for name in ("GDRCOPY_ENABLED", "GDS_ENABLED", "MOFED_ENABLED")) == expected


@pytest.mark.parametrize("driver", ["true", "false"])
def test_programs_of_the_host_are_stopped_only_if_the_driver_is_the_hosts(tmp_path: Path, driver: str) -> None:
    told = Host(tmp_path, ready=f"IS_HOST_DRIVER={driver}\n").run("state-mig-manager")
    assert told["WITH_SHUTDOWN_HOST_GPU_CLIENTS"] == driver
