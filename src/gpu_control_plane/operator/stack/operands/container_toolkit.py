"""The container toolkit: what lets containers use a card. It changes the configuration of the runtime, so nodes with
different runtimes have different DaemonSets."""

from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.node_facts import Runtime
from gpu_control_plane.operator.stack.common_settings import RUNTIME_CLASS, add_env, operand
from gpu_control_plane.operator.stack.daemonset_manifest import Container, DaemonSet
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.runtime_files import show_nri, show_runtime
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.variants import Variant, by_runtime

_HOOKS: Final = "/usr/share/containers/oci/hooks.d"


def _transform(daemonset: DaemonSet, stage: Stage, variant: Variant) -> None:
    section = msgspec.structs.replace(stage.policy.toolkit, args=())
    operand(daemonset, section, stage, image="CONTAINER_TOOLKIT_IMAGE")
    _how_cards_are_given(daemonset.main, stage, variant)
    _install_into(daemonset, section.install_dir.rstrip("/"))
    if variant.runtime is Runtime.CRIO and stage.openshift is None:
        daemonset.move_host_path("crio-hooks", _HOOKS)
    # Before the runtime's files, not last as elsewhere: it is here that people say where those are.
    add_env(daemonset.main, section.env)
    _configure_runtime(daemonset, stage, variant)


def _how_cards_are_given(container: Container, stage: Stage, variant: Variant) -> None:
    cdi = stage.policy.cdi
    if cdi.enabled:
        container.set_env("CDI_ENABLED", "true")
        container.set_env("NVIDIA_RUNTIME_SET_AS_DEFAULT", "false")
        container.set_env("NVIDIA_CONTAINER_RUNTIME_MODE", "cdi")
        container.set_env("CRIO_CONFIG_MODE", "config")
    elif variant.runtime is Runtime.CRIO:
        container.set_env("CRIO_CONFIG_MODE", "hook")
    if cdi.nri_plugin_enabled:
        container.set_env("ENABLE_NRI_PLUGIN", "true")


def _install_into(daemonset: DaemonSet, folder: str) -> None:
    if folder:
        daemonset.main.set_env("ROOT", folder)
        daemonset.move_host_path("toolkit-install-dir", folder)
        daemonset.main.move_mount("toolkit-install-dir", folder)


def _configure_runtime(daemonset: DaemonSet, stage: Stage, variant: Variant) -> None:
    daemonset.main.set_env("RUNTIME", variant.runtime.value)
    if stage.policy.cdi.nri_plugin_enabled:
        show_nri(daemonset)
        return
    if variant.runtime is Runtime.CONTAINERD:
        daemonset.main.set_env("CONTAINERD_RUNTIME_CLASS", stage.policy.operator.runtime_class or RUNTIME_CLASS)
    show_runtime(daemonset, variant.runtime)


STATE = State(
    name="state-container-toolkit",
    enabled=lambda policy: on(policy.toolkit.enabled, absent=True),
    transform=_transform,
    variants=by_runtime,
)
