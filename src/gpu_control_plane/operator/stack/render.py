"""Renders the objects of every state of a policy: assets, transforms, variants. Pure and deterministic.

A state that cannot be rendered says why and does not keep the others from being rendered; nor does a kind of nodes that
cannot be served keep the others from their DaemonSets.
"""

import copy

import msgspec

from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.kube.objects import OwnerReference
from gpu_control_plane.operator.stack.common_settings import apply_common_settings
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest, assets, set_namespace, set_owner
from gpu_control_plane.operator.stack.operands import STATES
from gpu_control_plane.operator.stack.render_input import RenderError, RenderInput
from gpu_control_plane.operator.stack.states import StackState
from gpu_control_plane.operator.stack.variants import Variant, suffixed_name


class RenderedState(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a state should have, in order, and why there are none, or not all."""

    state: str
    enabled: bool
    manifests: tuple[Manifest, ...] = ()
    problem: str = ""

    @property
    def daemonsets(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["kind"] == "DaemonSet"]


def render_policy(render_input: RenderInput, owner: OwnerReference | None = None) -> list[RenderedState]:
    """Every state of the stack, in order."""
    return [render_state(state, render_input, owner) for state in STATES]


def render_state(state: StackState, render_input: RenderInput, owner: OwnerReference | None = None) -> RenderedState:
    """One state. DaemonSets are left out while there is no GPU node for them."""
    if not state.enabled(render_input.policy):
        return RenderedState(state=state.name, enabled=False)
    try:
        manifests, problem = _objects(state, render_input)
    except RenderError as error:
        return RenderedState(state=state.name, enabled=True, problem=str(error))
    for manifest in manifests:
        set_metadata(manifest, state.name, render_input.platform.namespace, owner)
    return RenderedState(state=state.name, enabled=True, manifests=tuple(manifests), problem=problem)


def set_metadata(manifest: Manifest, state: str, namespace: str, owner: OwnerReference | None) -> None:
    """Set namespace, owner and the label of the state that the object belongs to."""
    set_namespace(manifest, namespace)
    manifest["metadata"].setdefault("labels", {})[str(PodLabel.OPERAND)] = state
    if owner is not None:
        set_owner(manifest, owner)


def _objects(state: StackState, render_input: RenderInput) -> tuple[list[Manifest], str]:
    """The objects of a state, and why some DaemonSets are not among them."""
    found = assets(state.name, openshift=render_input.openshift is not None)
    plain = [manifest for manifest in found if manifest["kind"] != "DaemonSet"]
    templates = [manifest for manifest in found if manifest["kind"] == "DaemonSet"]
    if not render_input.platform.service_monitors:
        plain = [manifest for manifest in plain if manifest["kind"] != "ServiceMonitor"]
    made, problems = state.objects(plain, render_input), []
    for template in templates if render_input.kinds else ():
        daemonsets, problem = _daemonsets(state, render_input, template)
        made += daemonsets
        problems.append(problem)
    return made, "; ".join(filter(None, problems))


def _daemonsets(state: StackState, render_input: RenderInput, template: Manifest) -> tuple[list[Manifest], str]:
    """One for each variant that can be rendered. If none can be, the whole state cannot."""
    made, problems = [], {}
    for variant in state.variants(render_input, template["metadata"]["name"]):
        try:
            made.append(_daemonset(state, render_input, copy.deepcopy(template), variant))
        except RenderError as error:
            problems[variant.label] = str(error)
    if problems and not made:
        raise RenderError("; ".join(dict.fromkeys(problems.values())))
    return made, "; ".join(f"{label}: {problem}" for label, problem in problems.items())


def _daemonset(state: StackState, render_input: RenderInput, manifest: Manifest, variant: Variant) -> Manifest:
    daemonset = DaemonSetManifest(manifest)
    state.transform(daemonset, render_input, variant)
    apply_common_settings(
        daemonset, render_input, variant, env=state.env(render_input.policy), runtime_class=state.runtime_class
    )
    apply_variant(daemonset, variant)
    if state.finish is not None:
        state.finish(daemonset)
    return manifest


def apply_variant(daemonset: DaemonSetManifest, variant: Variant) -> None:
    """Restrict a DaemonSet to its nodes. Only one without the plain name also selects its pods by variant: the selector
    of a DaemonSet cannot be changed, and the one with the plain name was created without a variant."""
    daemonset.select(variant.selector)
    if not variant.label:
        return
    daemonset.label({PodLabel.VARIANT: variant.label})
    if variant.name:
        daemonset.name = variant.name
    elif not variant.plain:
        daemonset.name = suffixed_name(daemonset.name, variant.label)
        daemonset.manifest["spec"]["selector"]["matchLabels"][str(PodLabel.VARIANT)] = variant.label
