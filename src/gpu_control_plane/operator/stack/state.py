"""What a state of the stack is: one module under `operands` describes each, `states` puts them in order."""

from collections.abc import Callable

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import EnvVar
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import Stage
from gpu_control_plane.operator.stack.variants import Variant, one_for_all


def _nothing(_daemonset: DaemonSet, _stage: Stage, _variant: Variant) -> None:
    """No transform of its own."""


def _as_they_are(manifests: list[Manifest], _stage: Stage) -> list[Manifest]:
    return manifests


def _never(_policy: ClusterPolicySpec) -> bool:
    return False


def _no_env(_policy: ClusterPolicySpec) -> tuple[EnvVar, ...]:
    return ()


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One state: when it is there, and how its assets become objects."""

    name: str
    """Name of the state and of its folder of assets."""
    enabled: Callable[[ClusterPolicySpec], bool]
    transform: Callable[[DaemonSet, Stage, Variant], None] = _nothing
    """What the policy changes in the DaemonSet, in place."""
    objects: Callable[[list[Manifest], Stage], list[Manifest]] = _as_they_are
    """Which of the other objects are there, and what the policy changes in them."""
    variants: Callable[[Stage, str], tuple[Variant, ...]] = one_for_all
    env: Callable[[ClusterPolicySpec], tuple[EnvVar, ...]] = _no_env
    """The environment that people wrote for the main container; it is applied last."""
    runtime_class: bool = False
    """Whether its pods need to see cards, by the runtime class or by NRI."""
    seal: Callable[[DaemonSet], None] | None = None
    """What comes when everything else is written, such as a digest over the whole."""
    orphan: Callable[[ClusterPolicySpec], bool] = _never
    """Whether its DaemonSets, when they go, leave their pods behind for somebody else to take over."""
