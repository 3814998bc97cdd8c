"""Kata's own manager, which older releases deployed. Its assets say by name what they may have left behind."""

from typing import Final

from gpu_control_plane.operator.stack.state import State

RUNTIME_CLASSES: Final = "nvidia.com/kata-runtime-class=true"
"""Selects the RuntimeClasses that it made; their names were free to choose."""

STATE = State(name="state-kata-manager", enabled=lambda _policy: False)
