"""The objects this operator would have for a found installation: rendered as in production, nothing is written."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import PodLabel
from gpu_control_plane.operator.cluster_policy import in_force
from gpu_control_plane.operator.drivers.manager_image import keep_manager
from gpu_control_plane.operator.drivers.owner import Driver
from gpu_control_plane.operator.drivers.ownership_index import driver_of
from gpu_control_plane.operator.drivers.predicates import asked_for
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.drivers.variants import nodes_of
from gpu_control_plane.operator.migration.installation import Installation
from gpu_control_plane.operator.migration.label_changes import Relabelled, relabelled
from gpu_control_plane.operator.node_facts import gpu_present, kind_of
from gpu_control_plane.operator.stack.images import NoImage
from gpu_control_plane.operator.stack.manifest import Manifest
from gpu_control_plane.operator.stack.render import Rendered, render_policy
from gpu_control_plane.operator.stack.render_input import CannotRender, Platform, Stage


class DriverPart(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one NVIDIADriver; with a problem nothing of it is touched."""

    driver: Driver
    nodes: tuple[Node, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    problem: str = ""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What there should be."""

    policy: ClusterPolicySpec | None = None
    """The ClusterPolicy in force. Without one only NVIDIADrivers count."""
    states: tuple[Rendered, ...] = ()
    drivers: tuple[DriverPart, ...] | None = None
    """None where the ClusterPolicy asks for no NVIDIADrivers: what they have brought goes."""
    nodes: tuple[Node, ...] = ()
    """Nodes with the labels that they would have."""
    trouble: str = ""
    """Why no node changes its NVIDIADriver."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What would not be carried out, and why."""
        states = (f"{state.state}: {state.problem}" for state in self.states if state.problem)
        drivers = (f"NVIDIADriver {part.driver.name}: {part.problem}" for part in self.drivers or () if part.problem)
        return (*states, *((f"NVIDIADrivers: {self.trouble}",) if self.trouble else drivers))


def desired(found: Installation) -> Wanted | None:
    """What would be applied; None where nothing would: there is nothing to go by, or it cannot be carried out."""
    force = in_force(found.policies)
    if force is None:
        if not found.drivers:
            return None
        return Wanted(nodes=found.nodes, drivers=_drivers(found, None, Relabelled(found.nodes)))
    if force.spec is None or force.problem:
        return None
    labelled = relabelled(found, force.spec)
    kinds = Counter(kind_of(node) for node in labelled.nodes if gpu_present(node.metadata.labels))
    return Wanted(
        policy=force.spec,
        states=tuple(render_policy(Stage(policy=force.spec, platform=_platform(found), kinds=kinds))),
        drivers=_drivers(found, force.spec, labelled) if asked_for(force.spec) else None,
        nodes=labelled.nodes,
        trouble=labelled.trouble,
    )


def _platform(found: Installation) -> Platform:
    """Our own settings where we are installed; else those that NVIDIA's operator has, as if they had come along."""
    theirs = {name: image for one in found.deployments for name, image in one.images.items()}
    return Platform(
        namespace=found.namespace,
        images=found.release.images if found.release is not None else theirs,
        service_monitors=True,
        config_maps={one.name: one.data for one in found.config_maps if PodLabel.OPERAND not in one.metadata.labels},
        held={
            one.name: one.metadata.labels[PodLabel.VARIANT]
            for one in found.daemonsets
            if PodLabel.VARIANT in one.metadata.labels
        },
    )


def _drivers(found: Installation, policy: ClusterPolicySpec | None, labelled: Relabelled) -> tuple[DriverPart, ...]:
    drivers = [driver_of(stored) for stored in found.drivers if not stored.deleting]
    return tuple(_part(found, driver, policy, labelled) for driver in sorted(drivers, key=lambda driver: driver.name))


def _part(found: Installation, driver: Driver, policy: ClusterPolicySpec | None, labelled: Relabelled) -> DriverPart:
    if labelled.trouble:
        return DriverPart(driver=driver, problem=labelled.trouble)
    nodes = nodes_of(driver, labelled.nodes)
    try:
        manifests = render_driver(driver, nodes, _platform(found), policy)
    except (CannotRender, NoImage) as error:
        return DriverPart(driver=driver, problem=str(error))
    _keep_managers(manifests, found)
    return DriverPart(driver=driver, nodes=tuple(nodes), manifests=tuple(manifests))


def _keep_managers(manifests: Sequence[Manifest], found: Installation) -> None:
    held = {one.name: one for one in found.daemonsets}
    for manifest in manifests:
        live = held.get(manifest["metadata"]["name"]) if manifest["kind"] == "DaemonSet" else None
        if live is not None:
            keep_manager(manifest, {"metadata": {"annotations": live.metadata.annotations}, **live.body()})
