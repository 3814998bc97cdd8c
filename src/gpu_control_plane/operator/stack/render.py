"""From a policy to the objects of every state: assets, transforms, variants. Pure, and the same input gives the same.

A state that cannot be rendered says why and does not keep the others from being rendered; nor does a kind of nodes that
cannot be served keep the others from their DaemonSets.
"""

import copy

import msgspec

from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.kube.objects import OwnerReference
from gpu_control_plane.operator.stack.common_settings import finish
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.images import NoImage
from gpu_control_plane.operator.stack.manifest import Manifest, assets, in_namespace, owned_by
from gpu_control_plane.operator.stack.render_input import CannotRender, Stage
from gpu_control_plane.operator.stack.state import State
from gpu_control_plane.operator.stack.states import STATES
from gpu_control_plane.operator.stack.variants import Variant, name_of


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A state as it should be: its objects in order, and why there are none, or not all."""

    state: str
    enabled: bool
    manifests: tuple[Manifest, ...] = ()
    problem: str = ""

    @property
    def daemonsets(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["kind"] == "DaemonSet"]


def render_policy(stage: Stage, owner: OwnerReference | None = None) -> list[Rendered]:
    """Every state of the stack, in order."""
    return [render_state(state, stage, owner) for state in STATES]


def render_state(state: State, stage: Stage, owner: OwnerReference | None = None) -> Rendered:
    """One state. DaemonSets are left out while there is no GPU node for them."""
    if not state.enabled(stage.policy):
        return Rendered(state=state.name, enabled=False)
    try:
        manifests, problem = _objects(state, stage)
    except (CannotRender, NoImage) as error:
        return Rendered(state=state.name, enabled=True, problem=str(error))
    for manifest in manifests:
        mark(manifest, state.name, stage.platform.namespace, owner)
    return Rendered(state=state.name, enabled=True, manifests=tuple(manifests), problem=problem)


def mark(manifest: Manifest, state: str, namespace: str, owner: OwnerReference | None) -> None:
    """Say of an object where it is, whose it is and which state it belongs to."""
    in_namespace(manifest, namespace)
    manifest["metadata"].setdefault("labels", {})[str(PodLabel.OPERAND)] = state
    if owner is not None:
        owned_by(manifest, owner)


def _objects(state: State, stage: Stage) -> tuple[list[Manifest], str]:
    """The objects of a state, and why some DaemonSets are not among them."""
    found = assets(state.name, openshift=stage.openshift is not None)
    plain = [manifest for manifest in found if manifest["kind"] != "DaemonSet"]
    templates = [manifest for manifest in found if manifest["kind"] == "DaemonSet"]
    if not stage.platform.service_monitors:
        plain = [manifest for manifest in plain if manifest["kind"] != "ServiceMonitor"]
    made, problems = state.objects(plain, stage), []
    for template in templates if stage.kinds else ():
        daemonsets, problem = _daemonsets(state, stage, template)
        made += daemonsets
        problems.append(problem)
    return made, "; ".join(filter(None, problems))


def _daemonsets(state: State, stage: Stage, template: Manifest) -> tuple[list[Manifest], str]:
    """One for each variant that can be rendered. What none of them can be rendered with is the state's own problem."""
    made, problems = [], {}
    for variant in state.variants(stage, template["metadata"]["name"]):
        try:
            made.append(_daemonset(state, stage, copy.deepcopy(template), variant))
        except (CannotRender, NoImage) as error:
            problems[variant.word] = str(error)
    if problems and not made:
        raise CannotRender("; ".join(dict.fromkeys(problems.values())))
    return made, "; ".join(f"{word}: {problem}" for word, problem in problems.items())


def _daemonset(state: State, stage: Stage, manifest: Manifest, variant: Variant) -> Manifest:
    daemonset = DaemonSet(manifest)
    state.transform(daemonset, stage, variant)
    finish(daemonset, stage, variant, env=state.env(stage.policy), runtime_class=state.runtime_class)
    for_variant(daemonset, variant)
    if state.seal is not None:
        state.seal(daemonset)
    return manifest


def for_variant(daemonset: DaemonSet, variant: Variant) -> None:
    """Bind a DaemonSet to its nodes. Only one without the plain name selects its pods by the variant, too: the selector
    of a DaemonSet cannot change, and the plain one has had none since before there were several."""
    daemonset.select(variant.selector)
    if not variant.word:
        return
    daemonset.label({PodLabel.VARIANT: variant.word})
    if variant.name:
        daemonset.name = variant.name
    elif not variant.plain:
        daemonset.name = name_of(daemonset.name, variant.word)
        daemonset.manifest["spec"]["selector"]["matchLabels"][str(PodLabel.VARIANT)] = variant.word
