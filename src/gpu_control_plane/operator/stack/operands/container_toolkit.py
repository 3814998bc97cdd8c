"""The container toolkit, which lets containers use cards. It changes the configuration of the container runtime, so
nodes with different runtimes have different DaemonSets."""

from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.fields import on
from gpu_control_plane.operator.node_facts import ContainerRuntime
from gpu_control_plane.operator.stack.daemonset_manifest import ContainerManifest, DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.runtime_files import mount_nri_socket, mount_runtime_files
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import RUNTIME_CLASS, add_env, apply_operand_section
from gpu_control_plane.operator.stack.variants import Variant, by_runtime

_HOOKS: Final = "/usr/share/containers/oci/hooks.d"


def _transform(daemonset: DaemonSetManifest, render_input: RenderInput, variant: Variant) -> None:
    section = msgspec.structs.replace(render_input.policy.toolkit, args=())
    apply_operand_section(daemonset, section, render_input, image="CONTAINER_TOOLKIT_IMAGE")
    _configure_cdi(daemonset.main, render_input, variant)
    _install_into(daemonset, section.install_dir.rstrip("/"))
    if variant.runtime is ContainerRuntime.CRIO and render_input.openshift is None:
        daemonset.move_host_path("crio-hooks", _HOOKS)
    # Before the runtime's files, not last as elsewhere: these variables say where the files are.
    add_env(daemonset.main, section.env)
    _configure_runtime(daemonset, render_input, variant)


def _configure_cdi(container: ContainerManifest, render_input: RenderInput, variant: Variant) -> None:
    cdi = render_input.policy.cdi
    if cdi.enabled:
        container.set_env("CDI_ENABLED", "true")
        container.set_env("NVIDIA_RUNTIME_SET_AS_DEFAULT", "false")
        container.set_env("NVIDIA_CONTAINER_RUNTIME_MODE", "cdi")
        container.set_env("CRIO_CONFIG_MODE", "config")
    elif variant.runtime is ContainerRuntime.CRIO:
        container.set_env("CRIO_CONFIG_MODE", "hook")
    if cdi.nri_plugin_enabled:
        container.set_env("ENABLE_NRI_PLUGIN", "true")


def _install_into(daemonset: DaemonSetManifest, folder: str) -> None:
    if folder:
        daemonset.main.set_env("ROOT", folder)
        daemonset.move_host_path("toolkit-install-dir", folder)
        daemonset.main.move_mount("toolkit-install-dir", folder)


def _configure_runtime(daemonset: DaemonSetManifest, render_input: RenderInput, variant: Variant) -> None:
    daemonset.main.set_env("RUNTIME", variant.runtime.value)
    if render_input.policy.cdi.nri_plugin_enabled:
        mount_nri_socket(daemonset)
        return
    if variant.runtime is ContainerRuntime.CONTAINERD:
        daemonset.main.set_env("CONTAINERD_RUNTIME_CLASS", render_input.policy.operator.runtime_class or RUNTIME_CLASS)
    mount_runtime_files(daemonset, variant.runtime)


STATE = StackState(
    name="state-container-toolkit",
    enabled=lambda policy: on(policy.toolkit.enabled, absent=True),
    transform=_transform,
    variants=by_runtime,
)
