"""The MPS control daemon, by which several programs compute on one card. It belongs to the device plugin: it has the
plugin's image, service account and switch, and runs on those of the plugin's nodes that share cards by MPS."""

import msgspec

from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.operands import device_plugin
from gpu_control_plane.operator.stack.plugin_config import DEVICE_PLUGIN_IMAGE, configure_plugin_config
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, configure_mig, set_mps_root
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    # The section's arguments are the plugin's; the daemon does not know them.
    section = msgspec.structs.replace(render_input.policy.device_plugin, args=())
    names = (daemonset.main.name, "mps-control-daemon-mounts")
    apply_operand_section(daemonset, section, render_input, image=DEVICE_PLUGIN_IMAGE, names=names)
    # Programs that share a card end with the daemon, so it reads an edit when its node selects another configuration.
    configure_plugin_config(daemonset, section, render_input, restart_on_edit=False)
    configure_mig(daemonset.main, render_input.policy)
    set_mps_root(daemonset, render_input.policy)


STATE = StackState(
    name="state-mps-control-daemon",
    enabled=device_plugin.enabled,
    transform=_transform,
    variants=by_runtime_class,
    runtime_class=True,
)
