"""The objects this operator would have for a found installation: rendered as in production, nothing is written."""

from collections import Counter
from typing import Any

import msgspec

from gpu_control_plane.operator.migration.installation import Installation


class Wanted(msgspec.Struct, frozen=True):
    """Manifests, and why there are none of some states."""

    manifests: tuple[dict[str, Any], ...] = ()
    problems: tuple[str, ...] = ()


def desired(found: Installation) -> Wanted | None:
    """What would be applied; None where there is no ClusterPolicy in force, or one that cannot be read."""
    from gpu_control_plane.api.nvidia.names import PodLabel  # noqa: PLC0415
    from gpu_control_plane.api.nvidia.stored import UnreadableSpec  # noqa: PLC0415
    from gpu_control_plane.operator.facts import gpu_present, has_card, kind_of  # noqa: PLC0415
    from gpu_control_plane.operator.stack.render import render_policy  # noqa: PLC0415 - takes long to import
    from gpu_control_plane.operator.stack.stage import Platform, Stage  # noqa: PLC0415

    if found.policy is None:
        return None
    try:
        spec = found.policy.read().spec
    except UnreadableSpec:
        return None
    images = {name: image for one in found.deployments for name, image in one.images.items()}
    nodes = [node for node in found.nodes if has_card(node.metadata.labels) or gpu_present(node.metadata.labels)]
    stage = Stage(
        policy=spec,
        platform=Platform(
            namespace=found.namespace,
            images=images,
            service_monitors=True,
            config_maps={one.name: one.data for one in found.config_maps},
            held={
                one.name: one.metadata.labels[PodLabel.VARIANT]
                for one in found.daemonsets
                if PodLabel.VARIANT in one.metadata.labels
            },
        ),
        kinds=Counter(kind_of(node) for node in nodes),
    )
    rendered = render_policy(stage)
    return Wanted(
        manifests=tuple(manifest for state in rendered for manifest in state.manifests),
        problems=tuple(f"{state.state}: {state.problem}" for state in rendered if state.problem),
    )
