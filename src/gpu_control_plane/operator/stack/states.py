"""What a state of the stack is. Each module under `operands` defines one; `operands` has them in order."""

from collections.abc import Callable

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.fields import EnvVar
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render_input import RenderInput
from gpu_control_plane.operator.stack.variants import Variant, one_for_all


def _no_transform(_daemonset: DaemonSetManifest, _render_input: RenderInput, _variant: Variant) -> None:
    """No transform of its own."""


def _unchanged(manifests: list[Manifest], _render_input: RenderInput) -> list[Manifest]:
    return manifests


def _never(_policy: ClusterPolicySpec) -> bool:
    return False


def _no_env(_policy: ClusterPolicySpec) -> tuple[EnvVar, ...]:
    return ()


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """When a state is deployed, and how its assets become objects."""

    name: str
    """Name of the state and of its folder of assets."""
    enabled: Callable[[ClusterPolicySpec], bool]
    transform: Callable[[DaemonSetManifest, RenderInput, Variant], None] = _no_transform
    """What the policy changes in the DaemonSet, in place."""
    objects: Callable[[list[Manifest], RenderInput], list[Manifest]] = _unchanged
    """Which of the other objects are deployed, and what the policy changes in them."""
    variants: Callable[[RenderInput, str], tuple[Variant, ...]] = one_for_all
    env: Callable[[ClusterPolicySpec], tuple[EnvVar, ...]] = _no_env
    """The environment that people wrote for the main container; it is applied last."""
    runtime_class: bool = False
    """Whether its pods need cards, by a runtime class or by NRI."""
    finish: Callable[[DaemonSetManifest], None] | None = None
    """The last change, after everything else: a digest over the whole DaemonSet."""
    orphan: Callable[[ClusterPolicySpec], bool] = _never
    """Whether its DaemonSets, when they are deleted, leave their pods running until upgrades replace them."""
