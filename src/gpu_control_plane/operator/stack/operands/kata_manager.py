"""Kata's own manager, which older releases of NVIDIA's operator deployed. Its assets name the objects that these
releases left, so that they are pruned; its RuntimeClasses, whose names people chose, are recognised by their owner."""

from gpu_control_plane.operator.stack.states import StackState

STATE = StackState(name="state-kata-manager", enabled=lambda _policy: False)
