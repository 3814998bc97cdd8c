"""The device plugin's configurations, of which each node chooses one by a label. Pure.

A companion copies the chosen one to where the operand reads it, once before the start and again whenever the label
changes. Without configurations there is no companion.
"""

from typing import Final

from gpu_control_plane.api.nvidia.fields import Operand
from gpu_control_plane.operator.stack.common_settings import limit, pull_secrets, run_image
from gpu_control_plane.operator.stack.config_maps import follow_config, named
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.images import image_of
from gpu_control_plane.operator.stack.render_input import Stage

DEVICE_PLUGIN_IMAGE: Final = "DEVICE_PLUGIN_IMAGE"

_COMPANIONS: Final = ("config-manager-init", "config-manager")
_CHOSEN: Final = "/config"
_AVAILABLE: Final = "/available-configs"


def choose_config(daemonset: DaemonSet, section: Operand, stage: Stage) -> None:
    """Add what the choice needs to an operand. Companions have the plugin's image and the operand's resources."""
    plugin = stage.policy.device_plugin
    if plugin.config is None or not plugin.config.name:
        daemonset.drop(*_COMPANIONS)
        return
    name = plugin.config.name
    named(stage.platform, name, field="devicePlugin.config")
    companions = [daemonset.container(companion) for companion in _COMPANIONS]
    image = image_of(plugin, fallback=DEVICE_PLUGIN_IMAGE, what="the device plugin", environment=stage.platform.images)
    run_image(companions, image, plugin)
    limit(companions, section.resources)
    pull_secrets(daemonset, *plugin.image_pull_secrets)
    for companion in companions:
        companion.set_env("DEFAULT_CONFIG", plugin.config.default)
        companion.set_env("FALLBACK_STRATEGIES", "empty")
    daemonset.main.set_env("CONFIG_FILE", f"{_CHOSEN}/config.yaml")
    for container in (daemonset.main, *companions):
        container.mount("available-configs", _AVAILABLE)
        container.mount("config", _CHOSEN)
    daemonset.add_volume("available-configs", configMap={"name": name})
    daemonset.add_volume("config", emptyDir={})
    if not daemonset.pod.get("hostPID"):
        daemonset.pod["shareProcessNamespace"] = True
    follow_config(daemonset, stage, name)
