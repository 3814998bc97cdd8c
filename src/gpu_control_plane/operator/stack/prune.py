"""Which objects of a ClusterPolicy are not asked for any more and are deleted. Pure.

An object whose state cannot be rendered at the moment stays. So do all DaemonSets while no node has a card: they cost
nothing then, and if the cards come back their pods are needed.
"""

import functools
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.operator.stack.live import Live, LiveDaemonSet
from gpu_control_plane.operator.stack.manifest import assets, on_delete
from gpu_control_plane.operator.stack.operands import STATES
from gpu_control_plane.operator.stack.render import RenderedState


class PruneInput(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy asks for, and what runs."""

    policy: str
    """UID of the policy."""
    enabled: frozenset[str]
    """States that are switched on."""
    unrendered: frozenset[str] = frozenset()
    """Those of them that cannot be rendered at the moment."""
    orphaned: frozenset[str] = frozenset()
    """States whose pods run on when their DaemonSets are deleted: NVIDIADrivers bring these drivers from now on."""
    policy_drivers: bool = False
    """Whether there are driver pods that the policy has brought."""
    old_pods: frozenset[str] = frozenset()
    """States with pods of an older template that are replaced one by one: they still use what that template names."""
    cards: bool = True
    """Whether any node has a card."""
    unneeded: Callable[[str, str], bool] = lambda _name, _state: False
    """Whether a DaemonSet, by name and state, has no node any more, or shares a node with its successor."""


def prune_input(
    policy: str,
    spec: ClusterPolicySpec,
    rendered: Iterable[RenderedState],
    *,
    policy_drivers: bool,
    old_pods: Iterable[str] = (),
    cards: bool,
    unneeded: Callable[[str, str], bool],
) -> PruneInput:
    """What the policy with this UID asks for, by what was rendered."""
    enabled = [state for state in rendered if state.enabled]
    return PruneInput(
        policy=policy,
        enabled=frozenset(state.state for state in enabled),
        unrendered=frozenset(state.state for state in enabled if state.problem),
        orphaned=frozenset(state.name for state in STATES if state.orphan(spec)),
        policy_drivers=policy_drivers,
        old_pods=frozenset(old_pods),
        cards=cards,
        unneeded=unneeded,
    )


def should_delete(live: Live, asked: PruneInput) -> bool:
    """Whether an object that was not rendered is deleted."""
    if not any(owner.controller and owner.uid == asked.policy for owner in live.metadata.owner_references):
        return False
    state, daemonset = state_of(live), isinstance(live, LiveDaemonSet)
    if state in asked.unrendered:
        return False
    if not daemonset:
        # Pods that have lost their DaemonSet still need their service account, and those that have yet to be replaced
        # their ConfigMaps: without them a container does not start again.
        return not (state in asked.orphaned and asked.policy_drivers) and state not in asked.old_pods
    return state not in asked.enabled or (asked.cards and asked.unneeded(live.name, state))


def orphans_pods(live: Live, asked: PruneInput) -> bool:
    """Whether the pods of a DaemonSet that is deleted run on: those of a driver that has a successor. Pods may be using
    the loaded driver, so the upgrade replaces it node by node."""
    state = state_of(live)
    return state in asked.orphaned or (state in asked.enabled and on_delete(live.body().get("spec", {})))


def state_of(live: Live) -> str:
    """The state an object belongs to, by our label; empty if that is not known.

    What NVIDIA's operator made has no such label, but has the names of the same manifests. Names of DaemonSets for one
    kernel or system begin with them.
    """
    return live.metadata.labels.get(PodLabel.OPERAND) or _by_name(live.resource.kind, live.name)


def _by_name(kind: str, name: str) -> str:
    known = _asset_states()
    if kind != LiveDaemonSet.resource.kind or (kind, name) in known:
        return known.get((kind, name), "")
    prefixes = [held for of, held in known if of == kind and name.startswith(f"{held}-")]
    return known[kind, max(prefixes, key=len)] if prefixes else ""


@functools.cache
def _asset_states() -> Mapping[tuple[str, str], str]:
    """The state of every object in the assets, by kind and name."""
    return {
        (manifest["kind"], manifest["metadata"]["name"]): state.name
        for state in STATES
        for manifest in assets(state.name, openshift=True)
    }
