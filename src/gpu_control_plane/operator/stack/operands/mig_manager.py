"""The MIG manager: divides the cards of a node as a label says."""

from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import MIGManagerSection
from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.stack.cdi import tell_cdi
from gpu_control_plane.operator.stack.common_settings import operand
from gpu_control_plane.operator.stack.config_maps import follow_config, named
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_runtime_class

_LAYOUTS: Final = "default-mig-parted-config"
_CLIENTS: Final = "default-gpu-clients"


def _transform(daemonset: DaemonSet, stage: Stage, _variant: Variant) -> None:
    section = stage.policy.mig_manager
    operand(daemonset, section, stage, image="MIG_MANAGER_IMAGE")
    layouts, clients = _layouts(section), _clients(section)
    if layouts:
        named(stage.platform, layouts, field="migManager.config")
        daemonset.add_volume("mig-parted-config", configMap={"name": layouts})
        daemonset.main.set_env("CONFIG_FILE", "/mig-parted-config/config.yaml")
    else:
        daemonset.main.set_env("DEFAULT_CONFIG_FILE", "/mig-parted-config/config-default.yaml")
    if clients:
        named(stage.platform, clients, field="migManager.gpuClientsConfig")
        daemonset.add_volume("gpu-clients", configMap={"name": clients})
    if layouts or clients:
        follow_config(daemonset, stage, *(name for name in (layouts, clients) if name))
    tell_cdi(daemonset.main, stage.policy)


def _objects(manifests: list[Manifest], stage: Stage) -> list[Manifest]:
    """Our own ConfigMaps are there only where nobody brings others."""
    section = stage.policy.mig_manager
    replaced = {name for name, other in ((_LAYOUTS, _layouts(section)), (_CLIENTS, _clients(section))) if other}
    return [held for held in manifests if held["kind"] != "ConfigMap" or held["metadata"]["name"] not in replaced]


def _layouts(section: MIGManagerSection) -> str:
    """The ConfigMap with layouts that somebody wrote. One with our name would be taken for ours."""
    name = section.config.name if section.config else ""
    return "" if name == _LAYOUTS else name


def _clients(section: MIGManagerSection) -> str:
    name = section.gpu_clients_config.name if section.gpu_clients_config else ""
    return "" if name == _CLIENTS else name


STATE = State(
    name="state-mig-manager",
    enabled=lambda policy: on(policy.mig_manager.enabled, absent=True),
    transform=_transform,
    objects=_objects,
    variants=by_runtime_class,
    env=lambda policy: policy.mig_manager.env,
    runtime_class=True,
)
