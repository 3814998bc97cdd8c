"""The MPS control daemon, by which several programs compute on one card. It belongs to the device plugin: it runs
its image under its service account, is switched on with it, and goes to its nodes that share cards by MPS."""

import msgspec

from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.mig import tell_mig
from gpu_control_plane.operator.stack.mps import move_mps
from gpu_control_plane.operator.stack.operands import device_plugin
from gpu_control_plane.operator.stack.plugin_config import DEVICE_PLUGIN_IMAGE, choose_config
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    # Arguments are for the plugin; the daemon does not know them.
    section = msgspec.structs.replace(stage.policy.device_plugin, args=())
    names = (daemonset.main.name, "mps-control-daemon-mounts")
    operand(daemonset, section, stage, image=DEVICE_PLUGIN_IMAGE, names=names)
    choose_config(daemonset, section, stage)
    tell_mig(daemonset.main, stage.policy)
    move_mps(daemonset, stage.policy)


STATE = State(
    name="state-mps-control-daemon",
    enabled=device_plugin.enabled,
    transform=_transform,
    variants=by_runtime_class,
    runtime_class=True,
)
