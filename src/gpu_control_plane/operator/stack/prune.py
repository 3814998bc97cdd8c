"""Which objects of a ClusterPolicy are no longer asked for and go. Pure.

Not what cannot be rendered at the moment. Nor, while no node has a card, the DaemonSets: nobody would miss them, and
everybody would miss what they might be needed for.
"""

import functools
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.operator.stack.live import Live, LiveDaemonSet
from gpu_control_plane.operator.stack.manifest import assets, on_delete
from gpu_control_plane.operator.stack.render import Rendered
from gpu_control_plane.operator.stack.states import STATES


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy asks for, and what runs."""

    policy: str
    """UID of the policy."""
    enabled: frozenset[str]
    """States that are switched on."""
    unrendered: frozenset[str] = frozenset()
    """Those of them that cannot be rendered at the moment."""
    handed_over: frozenset[str] = frozenset()
    """States that somebody else takes over, pods and all."""
    policy_drivers: bool = False
    """Whether drivers run that the policy has brought."""
    cards: bool = True
    """Whether any node has a card."""
    needless: Callable[[str, str], bool] = lambda _name, _state: False
    """Whether a DaemonSet of a state that is on has nothing to do any more, or is in the way of its successor."""


def asked_of(
    policy: str,
    spec: ClusterPolicySpec,
    rendered: Iterable[Rendered],
    *,
    policy_drivers: bool,
    cards: bool,
    needless: Callable[[str, str], bool],
) -> Asked:
    """What the policy with this UID asks for, by what became of it."""
    enabled = [state for state in rendered if state.enabled]
    return Asked(
        policy=policy,
        enabled=frozenset(state.state for state in enabled),
        unrendered=frozenset(state.state for state in enabled if state.problem),
        handed_over=frozenset(state.name for state in STATES if state.orphan(spec)),
        policy_drivers=policy_drivers,
        cards=cards,
        needless=needless,
    )


def goes(live: Live, asked: Asked) -> bool:
    """Whether an object that was not rendered goes."""
    if not any(owner.controller and owner.uid == asked.policy for owner in live.metadata.owner_references):
        return False
    state, daemonset = state_of(live), isinstance(live, LiveDaemonSet)
    if state in asked.unrendered:
        return False
    if not daemonset:
        # Pods that a hand-over has left behind still need their account.
        return not (state in asked.handed_over and asked.policy_drivers)
    return state not in asked.enabled or (asked.cards and asked.needless(live.name, state))


def leaves_pods(live: Live, asked: Asked) -> bool:
    """Whether the pods of a DaemonSet that goes run on: those of a driver whose successor is asked for. It is under
    somebody's work, so the upgrade of each node replaces it, in turn."""
    state = state_of(live)
    return state in asked.handed_over or (state in asked.enabled and on_delete(live.body().get("spec", {})))


def state_of(live: Live) -> str:
    """The state an object belongs to, by our label; empty if that cannot be said.

    What NVIDIA's operator made has no such label, but the names of the same manifests. Those of DaemonSets for one
    kernel or system begin with them.
    """
    return live.metadata.labels.get(PodLabel.OPERAND) or _by_name(live.resource.kind, live.name)


def _by_name(kind: str, name: str) -> str:
    known = _names()
    if kind != LiveDaemonSet.resource.kind or (kind, name) in known:
        return known.get((kind, name), "")
    begun = [held for of, held in known if of == kind and name.startswith(f"{held}-")]
    return known[kind, max(begun, key=len)] if begun else ""


@functools.cache
def _names() -> Mapping[tuple[str, str], str]:
    """The state of every object that the assets name, by kind and name."""
    return {
        (manifest["kind"], manifest["metadata"]["name"]): state.name
        for state in STATES
        for manifest in assets(state.name, openshift=True)
    }
