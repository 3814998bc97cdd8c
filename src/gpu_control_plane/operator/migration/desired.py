"""The objects that this operator would apply to an installation: rendered as in production, nothing is written."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.operator.cluster_policy import parse_active_policy, uses_driver_crd
from gpu_control_plane.operator.drivers.manager_image import keep_manager
from gpu_control_plane.operator.drivers.owner import ParsedDriver
from gpu_control_plane.operator.drivers.ownership_index import parse_driver
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.drivers.variants import nodes_with_driver
from gpu_control_plane.operator.migration.installation import Installation
from gpu_control_plane.operator.migration.label_changes import RelabelledNodes, relabel
from gpu_control_plane.operator.node_facts import is_gpu_node, node_kind
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render import RenderedState, render_policy
from gpu_control_plane.operator.stack.render_input import Platform, RenderError, RenderInput


class DesiredDriver(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one NVIDIADriver; with a problem none of its objects would be changed."""

    driver: ParsedDriver
    nodes: tuple[Node, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    problem: str = ""


class DesiredStack(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that there should be."""

    policy: ClusterPolicySpec | None = None
    """The active ClusterPolicy. Without one only NVIDIADrivers count."""
    states: tuple[RenderedState, ...] = ()
    drivers: tuple[DesiredDriver, ...] | None = None
    """None where the ClusterPolicy does not use NVIDIADrivers: their objects would be deleted."""
    nodes: tuple[Node, ...] = ()
    """Nodes with the labels that they would have."""
    ownership_problem: str = ""
    """Why no node changes its NVIDIADriver."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What would not be carried out, and why."""
        states = (f"{state.state}: {state.problem}" for state in self.states if state.problem)
        drivers = (f"NVIDIADriver {part.driver.name}: {part.problem}" for part in self.drivers or () if part.problem)
        return (*states, *((f"NVIDIADrivers: {self.ownership_problem}",) if self.ownership_problem else drivers))


def desired_stack(found: Installation) -> DesiredStack | None:
    """What would be applied; None if nothing would: there is no policy, or it cannot be carried out."""
    active = parse_active_policy(found.policies)
    if active is None:
        if not found.drivers:
            return None
        return DesiredStack(nodes=found.nodes, drivers=_drivers(found, None, RelabelledNodes(found.nodes)))
    if active.spec is None or active.problem:
        return None
    labelled = relabel(found, active.spec)
    kinds = Counter(node_kind(node) for node in labelled.nodes if is_gpu_node(node.metadata.labels))
    return DesiredStack(
        policy=active.spec,
        states=tuple(render_policy(RenderInput(policy=active.spec, platform=_platform(found), kinds=kinds))),
        drivers=_drivers(found, active.spec, labelled) if uses_driver_crd(active.spec) else None,
        nodes=labelled.nodes,
        ownership_problem=labelled.problem,
    )


def _platform(found: Installation) -> Platform:
    """The settings of our release, if it is installed; else those of NVIDIA's operator, as if they were taken over."""
    theirs = {name: image for one in found.deployments for name, image in one.images.items()}
    return Platform(
        namespace=found.namespace,
        images=found.release.images if found.release is not None else theirs,
        service_monitors=True,
        config_maps={one.name: one.data for one in found.config_maps if PodLabel.OPERAND not in one.metadata.labels},
        current_variants={
            one.name: one.metadata.labels[PodLabel.VARIANT]
            for one in found.daemonsets
            if PodLabel.VARIANT in one.metadata.labels
        },
    )


def _drivers(
    found: Installation, policy: ClusterPolicySpec | None, labelled: RelabelledNodes
) -> tuple[DesiredDriver, ...]:
    drivers = [parse_driver(stored) for stored in found.drivers if not stored.deleting]
    return tuple(
        _desired_driver(found, driver, policy, labelled) for driver in sorted(drivers, key=lambda driver: driver.name)
    )


def _desired_driver(
    found: Installation, driver: ParsedDriver, policy: ClusterPolicySpec | None, labelled: RelabelledNodes
) -> DesiredDriver:
    if labelled.problem:
        return DesiredDriver(driver=driver, problem=labelled.problem)
    nodes = nodes_with_driver(driver, labelled.nodes)
    try:
        manifests = render_driver(driver, nodes, _platform(found), policy)
    except RenderError as error:
        return DesiredDriver(driver=driver, problem=str(error))
    _keep_managers(manifests, found)
    return DesiredDriver(driver=driver, nodes=tuple(nodes), manifests=tuple(manifests))


def _keep_managers(manifests: Sequence[Manifest], found: Installation) -> None:
    held = {one.name: one for one in found.daemonsets}
    for manifest in manifests:
        live = held.get(manifest["metadata"]["name"]) if manifest["kind"] == "DaemonSet" else None
        if live is not None:
            keep_manager(manifest, {"metadata": {"annotations": live.metadata.annotations}, **live.body()})
