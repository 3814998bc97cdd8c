"""When each operand for virtual machines is there."""

from typing import Any

import pytest

from gpu_control_plane.operator.stack.operands import kata_manager, sandbox_validation
from gpu_control_plane.operator.stack.render import render_state
from gpu_control_plane.operator.stack.states import StackState
from unit.operator.stack.sandbox_builders import STATES, policy, render_input

SECTIONS = {
    "state-vgpu-manager": "vgpuManager",
    "state-vgpu-device-manager": "vgpuDeviceManager",
    "state-vfio-manager": "vfioManager",
    "state-sandbox-device-plugin": "sandboxDevicePlugin",
    "state-kata-device-plugin": "kataSandboxDevicePlugin",
    "state-cc-manager": "ccManager",
}
MODES = {
    "state-vgpu-manager": {"kubevirt", "kata"},
    "state-vgpu-device-manager": {"kubevirt", "kata"},
    "state-sandbox-validation": {"kubevirt", "kata"},
    "state-vfio-manager": {"kubevirt", "kata"},
    "state-sandbox-device-plugin": {"kubevirt"},
    "state-kata-device-plugin": {"kata"},
    "state-kata-manager": set[str](),
    "state-cc-manager": {"kata"},
}


def _everything_on(mode: str, **more: Any) -> Any:
    return policy(mode, **{section: {"enabled": True} for section in SECTIONS.values()}, **more)


@pytest.mark.parametrize("mode", ["kubevirt", "kata"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_what_runs_virtual_machines_decides_which_operands_there_are(state: StackState, mode: str) -> None:
    assert state.enabled(_everything_on(mode)) is (mode in MODES[state.name])


@pytest.mark.parametrize("mode", ["kubevirt", "kata"])
@pytest.mark.parametrize("switch", [False, None])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_without_virtual_machines_there_is_none(state: StackState, switch: bool | None, mode: str) -> None:
    spec = _everything_on(mode, sandboxWorkloads={"enabled": switch, "mode": mode})
    assert not state.enabled(spec)


@pytest.mark.parametrize("switch", [False, None])
@pytest.mark.parametrize("state", [state for state in STATES if state.name in SECTIONS], ids=lambda state: state.name)
def test_an_operand_that_is_not_switched_on_is_off(state: StackState, switch: bool | None) -> None:
    for mode in MODES[state.name]:
        assert not state.enabled(policy(mode, **{SECTIONS[state.name]: {"enabled": switch}}))


def test_the_validator_needs_no_switch_of_its_own() -> None:
    assert sandbox_validation.STATE.enabled(policy())


def test_a_state_that_is_off_renders_nothing() -> None:
    rendered = render_state(kata_manager.STATE, render_input(policy("kata", kataManager={"enabled": True})))
    assert not rendered.enabled
    assert not rendered.manifests
