"""Kata's own manager, which older releases deployed. Its assets name what these have left behind; the RuntimeClasses
that it made had names of people's choice, and are known by their owner."""

from gpu_control_plane.operator.stack.state import State

STATE = State(name="state-kata-manager", enabled=lambda _policy: False)
