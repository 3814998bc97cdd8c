"""The MIG manager, which partitions the cards of a node by the layout that a label names."""

from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import MIGManagerSection
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.config_maps import add_config_digest, config_map_data
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import apply_operand_section, configure_cdi
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class

_LAYOUTS: Final = "default-mig-parted-config"
_CLIENTS: Final = "default-gpu-clients"


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, _variant: Variant) -> None:
    section = render_input.policy.mig_manager
    apply_operand_section(daemonset, section, render_input, image="MIG_MANAGER_IMAGE")
    layouts, clients = _layouts(section), _clients(section)
    if layouts:
        config_map_data(render_input.platform, layouts, field="migManager.config")
        daemonset.add_volume("mig-parted-config", configMap={"name": layouts})
        daemonset.main.set_env("CONFIG_FILE", "/mig-parted-config/config.yaml")
    else:
        daemonset.main.set_env("DEFAULT_CONFIG_FILE", "/mig-parted-config/config-default.yaml")
    if clients:
        config_map_data(render_input.platform, clients, field="migManager.gpuClientsConfig")
        daemonset.add_volume("gpu-clients", configMap={"name": clients})
    if layouts or clients:
        add_config_digest(daemonset, render_input, *(name for name in (layouts, clients) if name))
    configure_cdi(daemonset.main, render_input.policy)


def _objects(manifests: list[Manifest], render_input: RenderInput) -> list[Manifest]:
    """Our own ConfigMaps are deployed only where the policy names no others."""
    section = render_input.policy.mig_manager
    replaced = {name for name, other in ((_LAYOUTS, _layouts(section)), (_CLIENTS, _clients(section))) if other}
    return [held for held in manifests if held["kind"] != "ConfigMap" or held["metadata"]["name"] not in replaced]


def _layouts(section: MIGManagerSection) -> str:
    """The ConfigMap with layouts that the policy names; empty if it is our own."""
    name = section.config.name if section.config else ""
    return "" if name == _LAYOUTS else name


def _clients(section: MIGManagerSection) -> str:
    name = section.gpu_clients_config.name if section.gpu_clients_config else ""
    return "" if name == _CLIENTS else name


STATE = StackState(
    name="state-mig-manager",
    enabled=lambda policy: on(policy.mig_manager.enabled, absent=True),
    transform=_transform,
    objects=_objects,
    variants=by_runtime_class,
    env=lambda policy: policy.mig_manager.env,
    runtime_class=True,
)
