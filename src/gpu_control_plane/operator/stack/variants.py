"""Which DaemonSets an operand needs in a mixed fleet, and what each is called. Pure.

A fleet of one kind needs one DaemonSet, under the plain name that NVIDIA's manifests give it. In a mixed fleet each
variant has a DaemonSet of its own. One of them has the plain name, and keeps it for as long as any node needs it: a
rename would delete running pods, among them drivers, from their nodes. For the same reason a variant selects its nodes
by label from the beginning, also while it is the only one: a node selector that is added later changes the pod template
and so replaces all pods.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import AGENT, NodeLabel, PodLabel
from gpu_control_plane.operator.node_facts import ContainerRuntime, NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import RenderError, RenderInput

_APP: Final = "app"
_NAME_LIMIT: Final = 63


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that one DaemonSet is for."""

    label: str = ""
    """The variant's label value, which is also the end of its DaemonSet's name: `ubuntu24.04`, `crio`."""
    plain: bool = True
    """Whether its DaemonSet has the plain name."""
    name: str = ""
    """The whole name of its DaemonSet, where that is fixed; it then selects its pods as the plain one does."""
    selector: Mapping[str, str] = {}
    """Labels of its nodes besides the operand's deploy label."""
    system: OperatingSystem | None = None
    kernel: str = ""
    runtime: ContainerRuntime = ContainerRuntime.CONTAINERD
    ostree: str = ""
    agent: bool = False
    """Whether our agent hands out the cards of its nodes."""


def one_for_all(render_input: RenderInput, _name: str) -> tuple[Variant, ...]:
    """Nodes of all kinds share the DaemonSet; its container runtime is the one that most of them have."""
    return (Variant(runtime=_most_common_runtime(render_input)),)


def by_runtime(render_input: RenderInput, name: str) -> tuple[Variant, ...]:
    """A DaemonSet for each container runtime."""
    runtimes = {_runtime(render_input, kind) for kind in render_input.kinds} or {ContainerRuntime.CONTAINERD}
    made = [
        Variant(label=runtime.value, runtime=runtime, selector={NodeLabel.RUNTIME: runtime.value})
        for runtime in runtimes
    ]
    return assign_plain_name(
        render_input, name, made, lambda variant, kind: _runtime(render_input, kind) == variant.runtime
    )


def by_runtime_class(render_input: RenderInput, name: str) -> tuple[Variant, ...]:
    """For an operand that needs cards: one DaemonSet, unless nodes with CRI-O get no runtime class and others do."""
    cdi, runtimes = render_input.policy.cdi, {_runtime(render_input, kind) for kind in render_input.kinds}
    alike = (
        cdi.enabled
        or cdi.nri_plugin_enabled
        or runtimes <= {ContainerRuntime.CRIO}
        or ContainerRuntime.CRIO not in runtimes
    )
    return one_for_all(render_input, name) if alike else by_runtime(render_input, name)


def with_agent_variants(render_input: RenderInput, made: tuple[Variant, ...], deploy_label: str) -> tuple[Variant, ...]:
    """The variants, and for each that has nodes whose cards our agent hands out a second one for these: they have the
    value `agent` in the deploy label."""
    return made + tuple(
        msgspec.structs.replace(
            variant,
            label=AGENT if variant.plain else f"{variant.label}-{AGENT}",
            plain=False,
            selector={**variant.selector, deploy_label: AGENT},
            agent=True,
        )
        for variant in made
        if any(kind.agent and _selects(render_input, variant, kind) for kind in render_input.kinds)
    )


def by_system(render_input: RenderInput, name: str) -> tuple[Variant, ...]:
    """A DaemonSet for each operating system."""
    known = [kind.system for kind in render_input.kinds if kind.system is not None]
    if not known:
        raise RenderError(
            "no GPU node says which operating system it has: Node Feature Discovery sets the labels"
            f" {NodeLabel.OS_ID} and {NodeLabel.OS_VERSION}"
        )
    by_tag: dict[str, OperatingSystem] = {}
    for system in sorted(known):
        by_tag.setdefault(system.tag, system)
    made = [Variant(label=tag, system=system, selector=system.selector) for tag, system in by_tag.items()]
    return assign_plain_name(
        render_input,
        name,
        made,
        lambda variant, kind: kind.system is not None and kind.system.tag == variant.label,
    )


def restricted_to(render_input: RenderInput, gets: Callable[[NodeKind], bool]) -> RenderInput:
    """The input without kinds of nodes that do not get the operand. They would cause DaemonSets for systems that none
    of its nodes has, and hide that the systems of its own nodes are not known."""
    kinds = {kind: count for kind, count in render_input.kinds.items() if gets(kind)}
    return msgspec.structs.replace(render_input, kinds=kinds)


def select_own_pods(daemonset: DaemonSetManifest, variant: Variant) -> None:
    """Select only pods of this variant: a DaemonSet adopts pods that it selects and that have no owner, and would
    delete a running driver from every node that it is not for. Pods for a release of CoreOS are selected by the
    DaemonSet's name, as NVIDIA's operator has it."""
    pods = daemonset.manifest["spec"]["selector"]["matchLabels"]
    if variant.ostree and variant.name:
        daemonset.label({_APP: variant.name})
        pods[_APP] = variant.name
    elif variant.label and not variant.ostree:
        pods[str(PodLabel.VARIANT)] = variant.label


def assign_plain_name(
    render_input: RenderInput, name: str, made: list[Variant], covers: Callable[[Variant, NodeKind], bool]
) -> tuple[Variant, ...]:
    """Decide which variant has the plain name: the one that has it already, else, of those without a DaemonSet under
    another name, the one with most nodes, else the first by label. A variant whose pods already run under another name
    never takes it: they would have to be replaced."""
    current = render_input.platform.current_variants

    def rank(variant: Variant) -> tuple[bool, int, str]:
        nodes = sum(count for kind, count in render_input.kinds.items() if covers(variant, kind))
        return variant.label != current.get(name), -nodes, variant.label

    candidates = [
        variant
        for variant in made
        if variant.label == current.get(name) or current.get(suffixed_name(name, variant.label)) != variant.label
    ]
    plain = min(candidates, key=rank, default=None)
    rest = sorted((variant for variant in made if variant is not plain), key=lambda variant: variant.label)
    others = tuple(msgspec.structs.replace(variant, plain=False) for variant in rest)
    return others if plain is None else (plain, *others)


def suffixed_name(name: str, label: str) -> str:
    """The name of a variant's DaemonSet when another variant has the plain name."""
    return f"{name}-{label}"[:_NAME_LIMIT].rstrip("-.").lower()


def _selects(render_input: RenderInput, variant: Variant, kind: NodeKind) -> bool:
    return not variant.selector or variant.runtime == _runtime(render_input, kind)


def _runtime(render_input: RenderInput, kind: NodeKind) -> ContainerRuntime:
    return ContainerRuntime.CRIO if render_input.openshift is not None else kind.runtime


def _most_common_runtime(render_input: RenderInput) -> ContainerRuntime:
    counts: dict[ContainerRuntime, int] = {}
    for kind, count in render_input.kinds.items():
        runtime = _runtime(render_input, kind)
        counts[runtime] = counts.get(runtime, 0) + count
    return max(sorted(counts), key=lambda runtime: counts[runtime], default=ContainerRuntime.CONTAINERD)
