"""Runtime classes: names by which pods ask for the toolkit's runtimes. With NRI no pod needs one."""

from gpu_control_plane.operator.stack.common_settings import RUNTIME_CLASS
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.state import State


def _runtime_classes(manifests: list[Manifest], stage: Stage) -> list[Manifest]:
    """The one that operands use, under the name it has in the policy; the others only where there is CDI."""
    usual, *others = manifests
    name = stage.policy.operator.runtime_class or RUNTIME_CLASS
    usual["metadata"]["name"] = usual["handler"] = name
    if not stage.policy.cdi.enabled:
        return [usual]
    return [usual, *(manifest for manifest in others if manifest["metadata"]["name"] != name)]


STATE = State(
    name="pre-requisites",
    enabled=lambda policy: not policy.cdi.nri_plugin_enabled,
    objects=_runtime_classes,
)
