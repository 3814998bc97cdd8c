"""The sandbox validator, and the operands that wait for it."""

import subprocess
from pathlib import Path

import pytest

from gpu_control_plane.operator.stack.operands import (
    kata_device_plugin,
    sandbox_device_plugin,
    vgpu_device_manager,
)
from gpu_control_plane.operator.stack.operands.sandbox_validation import STATE
from gpu_control_plane.operator.stack.states import StackState
from unit.operator.stack.sandbox_builders import daemonset, mounts, policy, render_input

STEPS = ["cc-manager", "vfio-pci", "vgpu-manager", "vgpu-devices"]
VALIDATIONS = "/run/nvidia/validations"


def test_steps_come_in_order_and_wait() -> None:
    made = daemonset(STATE, render_input(policy("kata")))
    steps = list(made.containers())[:-1]
    assert [step.name for step in steps] == [f"{name}-validation" for name in STEPS]
    assert [step.env("COMPONENT") for step in steps] == STEPS
    assert {step.env("WITH_WAIT") for step in steps} == {"true"}


@pytest.mark.parametrize(
    ("mode", "enabled", "checked"),
    [("kata", True, True), ("kata", False, False), ("kata", None, False), ("kubevirt", True, False)],
)
def test_confidential_computing_is_checked_only_where_something_sets_it_up(
    mode: str, enabled: bool | None, checked: bool
) -> None:
    made = daemonset(STATE, render_input(policy(mode, ccManager={"enabled": enabled})))
    assert made.has("cc-manager-validation") is checked


@pytest.mark.parametrize("workload", ["container", "vm-passthrough", "vm-vgpu"])
def test_steps_know_what_nodes_without_a_label_are_for(workload: str) -> None:
    spec = policy(sandboxWorkloads={"enabled": True, "defaultWorkload": workload})
    made = daemonset(STATE, render_input(spec))
    for name in STEPS[1:]:
        assert made.container(f"{name}-validation").env("DEFAULT_GPU_WORKLOAD_CONFIG") == workload


@pytest.mark.parametrize(
    ("section", "step"), [("vfioPCI", "vfio-pci"), ("vgpuManager", "vgpu-manager"), ("vgpuDevices", "vgpu-devices")]
)
def test_each_step_takes_the_environment_that_people_wrote_for_it(section: str, step: str) -> None:
    env = [
        {"name": "DEFAULT_GPU_WORKLOAD_CONFIG", "value": "vm-vgpu"},
        {"name": "SLEEP_INTERVAL_SECONDS", "value": "9"},
    ]
    made = daemonset(STATE, render_input(policy(validator={section: {"env": env}})))
    touched = [held.name for held in made.containers() if held.env("SLEEP_INTERVAL_SECONDS") == "9"]
    assert touched == [f"{step}-validation"]
    assert made.container(f"{step}-validation").env("DEFAULT_GPU_WORKLOAD_CONFIG") == "vm-vgpu"


def test_the_environment_of_the_validator_goes_to_the_one_that_stays() -> None:
    made = daemonset(STATE, render_input(policy(validator={"env": [{"name": "LOUD", "value": "1"}]})))
    assert [held.name for held in made.containers() if held.env("LOUD")] == ["nvidia-sandbox-validator"]


def test_a_step_sees_what_it_checks() -> None:
    made = daemonset(STATE, render_input(policy(hostPaths={"rootFS": "/sysroot", "driverInstallDir": "/opt/driver"})))
    assert mounts(made, "vfio-pci-validation") == {"/host": "/sysroot", VALIDATIONS: VALIDATIONS}
    assert mounts(made, "vgpu-manager-validation") == {
        "/host": "/sysroot",
        "/run/nvidia/driver": "/opt/driver",
        VALIDATIONS: VALIDATIONS,
    }
    assert mounts(made, "vgpu-devices-validation") == {VALIDATIONS: VALIDATIONS}


def test_the_ready_file_is_removed_when_the_pod_ends(tmp_path: Path) -> None:
    (tmp_path / "vfio-pci-ready").touch()
    (tmp_path / "workload-type").write_text("vm-passthrough")
    hook = daemonset(STATE, render_input()).main.manifest["lifecycle"]["preStop"]["exec"]["command"]
    subprocess.run([*hook[:-1], hook[-1].replace(VALIDATIONS, str(tmp_path))], check=True)
    assert not list(tmp_path.iterdir())


WAITS: list[tuple[StackState, str, dict[str, str], bool]] = [
    (vgpu_device_manager.STATE, "vgpu-manager", {}, False),
    (vgpu_device_manager.STATE, "vgpu-manager", {"vgpu-manager-ready": ""}, True),
    (vgpu_device_manager.STATE, "vgpu-manager", {"host-vgpu-manager-ready": ""}, True),
    (sandbox_device_plugin.STATE, "vfio-pci", {"vfio-pci-ready": ""}, False),
    (sandbox_device_plugin.STATE, "vfio-pci", {"workload-type": "vm-vgpu"}, True),
    (sandbox_device_plugin.STATE, "vfio-pci", {"workload-type": "vm-passthrough"}, False),
    (
        sandbox_device_plugin.STATE,
        "vfio-pci",
        {"workload-type": "vm-passthrough\n", "vfio-pci-ready": ""},
        True,
    ),
    (sandbox_device_plugin.STATE, "vgpu-devices", {"workload-type": "vm-passthrough"}, True),
    (sandbox_device_plugin.STATE, "vgpu-devices", {"workload-type": "vm-vgpu"}, False),
    (
        sandbox_device_plugin.STATE,
        "vgpu-devices",
        {"workload-type": "vm-vgpu", "vgpu-devices-ready": ""},
        True,
    ),
    (kata_device_plugin.STATE, "vfio-pci", {"workload-type": "vm-passthrough"}, False),
    (kata_device_plugin.STATE, "vfio-pci", {"workload-type": "vm-passthrough", "vfio-pci-ready": ""}, True),
]


@pytest.mark.parametrize(("state", "step", "files", "passes"), WAITS)
def test_an_operand_starts_when_what_it_needs_is_ready(
    state: StackState, step: str, files: dict[str, str], passes: bool, tmp_path: Path
) -> None:
    mode = "kata" if state is kata_device_plugin.STATE else "kubevirt"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = daemonset(state, render_input(policy(mode))).container(f"{step}-validation").manifest["args"][0]
    assert _runs_through(script.replace(VALIDATIONS, str(tmp_path))) is passes


def _runs_through(script: str) -> bool:
    """Whether a script ends well by itself; one that begins to wait does not."""
    waiting = script.replace("sleep 5", "exit 75")
    done = subprocess.run(["/bin/sh", "-c", waiting], capture_output=True, check=False, timeout=60)
    assert done.returncode in {0, 75}, done.stderr
    return done.returncode == 0
