"""The device plugin's configurations, of which each node selects one by a label. Pure.

A sidecar, the config manager, copies the selected one to where the operand reads it: once before the operand starts,
and again whenever the label changes. Without configurations there is no config manager.
"""

from typing import Final

from gpu_control_plane.api.nvidia.fields import Operand
from gpu_control_plane.operator.stack.config_maps import add_config_digest, config_map_data
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.images import image_of
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.transforms import add_pull_secrets, set_image, set_resources

DEVICE_PLUGIN_IMAGE: Final = "DEVICE_PLUGIN_IMAGE"

_CONFIG_MANAGERS: Final = ("config-manager-init", "config-manager")
_CHOSEN: Final = "/config"
_AVAILABLE: Final = "/available-configs"


def configure_plugin_config(
    daemonset: DaemonSetManifest, section: Operand, render_input: RenderInput, *, restart_on_edit: bool = True
) -> None:
    """Add the config manager to an operand. It has the plugin's image and the operand's resources. An edit of the
    configurations makes new pods, unless others would lose what they compute by that."""
    plugin = render_input.policy.device_plugin
    if plugin.config is None or not plugin.config.name:
        daemonset.drop(*_CONFIG_MANAGERS)
        return
    name = plugin.config.name
    config_map_data(render_input.platform, name, field="devicePlugin.config")
    managers = [daemonset.container(manager) for manager in _CONFIG_MANAGERS]
    image = image_of(
        plugin, fallback=DEVICE_PLUGIN_IMAGE, what="the device plugin", environment=render_input.platform.images
    )
    set_image(managers, image, plugin)
    set_resources(managers, section.resources)
    add_pull_secrets(daemonset, *plugin.image_pull_secrets)
    for manager in managers:
        manager.set_env("DEFAULT_CONFIG", plugin.config.default)
        manager.set_env("FALLBACK_STRATEGIES", "empty")
    daemonset.main.set_env("CONFIG_FILE", f"{_CHOSEN}/config.yaml")
    for container in (daemonset.main, *managers):
        container.mount("available-configs", _AVAILABLE)
        container.mount("config", _CHOSEN)
    daemonset.add_volume("available-configs", configMap={"name": name})
    daemonset.add_volume("config", emptyDir={})
    if not daemonset.pod.get("hostPID"):
        daemonset.pod["shareProcessNamespace"] = True
    if restart_on_edit:
        add_config_digest(daemonset, render_input, name)
