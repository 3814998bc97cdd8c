"""One operand, several kinds of nodes: which DaemonSets it needs, and what each is called. Pure.

A fleet of one kind needs one DaemonSet, under the plain name that everybody knows. In a mixed fleet each variant has
a DaemonSet of its own. One of them keeps the plain name, and keeps it for as long as any node needs it: a rename
would take running pods, among them drivers, away from their nodes. For the same reason a variant selects its nodes
from the beginning, also while it is the only one: a selector that came later would be another pod.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.nvidia.names import AGENT, NodeLabel, PodLabel
from gpu_control_plane.operator.node_facts import NodeKind, Runtime, System
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.render_input import CannotRender, Stage

_APP: Final = "app"
_NAME_LIMIT: Final = 63


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes one DaemonSet is for."""

    word: str = ""
    """Names it in labels and names: `ubuntu24.04`, `crio`."""
    plain: bool = True
    """Whether its DaemonSet has the plain name."""
    name: str = ""
    """All of its DaemonSet's name, where that is fixed; it then selects its pods as the plain one does."""
    selector: Mapping[str, str] = {}
    """Labels of its nodes beyond the operand's gate."""
    system: System | None = None
    kernel: str = ""
    runtime: Runtime = Runtime.CONTAINERD
    ostree: str = ""
    agent: bool = False
    """Whether our agent hands out the cards of its nodes."""


def one_for_all(stage: Stage, _name: str) -> tuple[Variant, ...]:
    """Nodes of all kinds share the operand; the runtime it is told is that of most of them."""
    return (Variant(runtime=_usual_runtime(stage)),)


def by_runtime(stage: Stage, name: str) -> tuple[Variant, ...]:
    """A DaemonSet for each container runtime."""
    runtimes = {_runtime(stage, kind) for kind in stage.kinds} or {Runtime.CONTAINERD}
    made = [
        Variant(word=runtime.value, runtime=runtime, selector={NodeLabel.RUNTIME: runtime.value})
        for runtime in runtimes
    ]
    return settled(stage, name, made, lambda variant, kind: _runtime(stage, kind) == variant.runtime)


def by_runtime_class(stage: Stage, name: str) -> tuple[Variant, ...]:
    """For an operand that needs cards: one DaemonSet, unless CRI-O's nodes get no runtime class and others do."""
    cdi, runtimes = stage.policy.cdi, {_runtime(stage, kind) for kind in stage.kinds}
    alike = cdi.enabled or cdi.nri_plugin_enabled or runtimes <= {Runtime.CRIO} or Runtime.CRIO not in runtimes
    return one_for_all(stage, name) if alike else by_runtime(stage, name)


def beside_agent(stage: Stage, made: tuple[Variant, ...], gate: str) -> tuple[Variant, ...]:
    """The variants, and one more of each that has nodes whose cards our agent hands out: their label `gate` says so."""
    return made + tuple(
        msgspec.structs.replace(
            variant,
            word=AGENT if variant.plain else f"{variant.word}-{AGENT}",
            plain=False,
            selector={**variant.selector, gate: AGENT},
            agent=True,
        )
        for variant in made
        if any(kind.agent and _selects(stage, variant, kind) for kind in stage.kinds)
    )


def by_system(stage: Stage, name: str) -> tuple[Variant, ...]:
    """A DaemonSet for each operating system."""
    known = [kind.system for kind in stage.kinds if kind.system is not None]
    if not known:
        raise CannotRender(
            "no GPU node says which operating system it has: Node Feature Discovery sets the labels"
            f" {NodeLabel.OS_ID} and {NodeLabel.OS_VERSION}"
        )
    by_tag: dict[str, System] = {}
    for system in sorted(known):
        by_tag.setdefault(system.tag, system)
    made = [Variant(word=tag, system=system, selector=system.selector) for tag, system in by_tag.items()]
    return settled(stage, name, made, lambda variant, kind: kind.system is not None and kind.system.tag == variant.word)


def only(stage: Stage, meant: Callable[[NodeKind], bool]) -> Stage:
    """The stage without kinds of nodes that an operand does not come to. They would bring DaemonSets for systems that
    none of its nodes has, and hide that the systems of its own nodes are not known."""
    return msgspec.structs.replace(stage, kinds={kind: count for kind, count in stage.kinds.items() if meant(kind)})


def find_its_own(daemonset: DaemonSet, variant: Variant) -> None:
    """Select no pods but those of this variant: a DaemonSet adopts whatever it finds without an owner, and would remove
    a running driver from every node that it is not for. A release of CoreOS has always been known by the name."""
    pods = daemonset.manifest["spec"]["selector"]["matchLabels"]
    if variant.ostree and variant.name:
        daemonset.label({_APP: variant.name})
        pods[_APP] = variant.name
    elif variant.word and not variant.ostree:
        pods[str(PodLabel.VARIANT)] = variant.word


def settled(
    stage: Stage, name: str, made: list[Variant], covers: Callable[[Variant, NodeKind], bool]
) -> tuple[Variant, ...]:
    """Decide who has the plain name: the one that has it already, else, of those without a DaemonSet of another name,
    the one with most nodes, else by name. Nobody takes it who would have to leave running pods behind for it."""
    held = stage.platform.held

    def rank(variant: Variant) -> tuple[bool, int, str]:
        nodes = sum(count for kind, count in stage.kinds.items() if covers(variant, kind))
        return variant.word != held.get(name), -nodes, variant.word

    candidates = [
        variant
        for variant in made
        if variant.word == held.get(name) or held.get(name_of(name, variant.word)) != variant.word
    ]
    plain = min(candidates, key=rank, default=None)
    rest = sorted((variant for variant in made if variant is not plain), key=lambda variant: variant.word)
    others = tuple(msgspec.structs.replace(variant, plain=False) for variant in rest)
    return others if plain is None else (plain, *others)


def name_of(name: str, word: str) -> str:
    """What the DaemonSet of a variant is called when another one has the plain name."""
    return f"{name}-{word}"[:_NAME_LIMIT].rstrip("-.").lower()


def _selects(stage: Stage, variant: Variant, kind: NodeKind) -> bool:
    return not variant.selector or variant.runtime == _runtime(stage, kind)


def _runtime(stage: Stage, kind: NodeKind) -> Runtime:
    return Runtime.CRIO if stage.openshift is not None else kind.runtime


def _usual_runtime(stage: Stage) -> Runtime:
    counts: dict[Runtime, int] = {}
    for kind, count in stage.kinds.items():
        runtime = _runtime(stage, kind)
        counts[runtime] = counts.get(runtime, 0) + count
    return max(sorted(counts), key=lambda runtime: counts[runtime], default=Runtime.CONTAINERD)
