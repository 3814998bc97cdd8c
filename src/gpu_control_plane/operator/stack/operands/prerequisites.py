"""RuntimeClasses, by which pods select the toolkit's runtimes. With the NRI plugin no pod needs one."""

from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.transforms import RUNTIME_CLASS


def _runtime_classes(manifests: list[Manifest], render_input: RenderInput) -> list[Manifest]:
    """The one that operands use, under the policy's name for it; the others only with CDI."""
    main, *others = manifests
    name = render_input.policy.operator.runtime_class or RUNTIME_CLASS
    main["metadata"]["name"] = main["handler"] = name
    if not render_input.policy.cdi.enabled:
        return [main]
    return [main, *(manifest for manifest in others if manifest["metadata"]["name"] != name)]


STATE = StackState(
    name="pre-requisites",
    enabled=lambda policy: not policy.cdi.nri_plugin_enabled,
    objects=_runtime_classes,
)
