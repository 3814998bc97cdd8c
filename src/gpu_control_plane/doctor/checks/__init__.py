"""All checks, in the order in which they are made and shown: a module for each group."""

from typing import Final

from gpu_control_plane.doctor.check import Check
from gpu_control_plane.doctor.checks import cards, control_plane, nodes, pods, pools, ray, stack

CHECKS: Final = tuple(
    each
    for module in (control_plane, nodes, cards, pools, pods, stack, ray)
    for each in vars(module).values()
    if isinstance(each, Check)
)
