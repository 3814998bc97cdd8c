"""The operator as a part of the controller process: its parts, and who tells whom.

Each part watches what it needs by itself. Here is only what one part has to hear from another.
"""

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.kube import Key, Requeue, Runtime, Selection
from gpu_control_plane.kube.changes import spec_changed
from gpu_control_plane.kube.crd import ESTABLISHED, CustomResourceDefinition
from gpu_control_plane.kube.pace import Pace
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.charge import Charge, calls
from gpu_control_plane.operator.drivers.concerns import owner_uid
from gpu_control_plane.operator.drivers.controller import Drivers
from gpu_control_plane.operator.drivers.reporter import DriverReporter
from gpu_control_plane.operator.facts import gpu_present
from gpu_control_plane.operator.labelling import build_labelling
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.rival import RivalWatch
from gpu_control_plane.operator.stack.apply import Writer
from gpu_control_plane.operator.stack.controller import Stack, Surroundings
from gpu_control_plane.operator.stack.live import LiveServiceMonitor
from gpu_control_plane.operator.stack.stage import Platform
from gpu_control_plane.operator.stack.standings import Standings
from gpu_control_plane.operator.upgrade import Upgrades, build_upgrades
from gpu_control_plane.operator.upgrade.campaigns import THE_POLICYS
from gpu_control_plane.operator.upgrade.look import is_driver
from gpu_control_plane.operator.views import DaemonSet, OperandPod

NAMESPACE: Final = "d8-gpu-operator"

_IMAGE: Final = "_IMAGE"
_DRIVERS: Final = "operator/drivers"
_OWNERS: Final = Key("owners")
_PAUSE: Final = 0.5


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is told about the operator."""

    namespace: str = NAMESPACE
    """Where operands run."""
    images: Mapping[str, str] = {}
    """Environment variables that name images."""


def images_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that name images, such as DRIVER_IMAGE."""
    return {name: value for name, value in environment.items() if name.endswith(_IMAGE) and value}


def build(runtime: Runtime, options: Options | None = None, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add the operator to a process."""
    options = options or Options(images=images_from(os.environ))
    rival = RivalWatch(runtime, now=now)
    openshift = OpenShiftWatch(runtime)
    charge = Charge(runtime, rival)
    writer = Writer(runtime, options.namespace)
    standings = Standings(runtime, options.namespace)
    pods = runtime.cache(OperandPod, Selection(namespace=options.namespace))
    pods.index(_DRIVERS, _driver_on)
    labelling = build_labelling(runtime, charge, lambda node: pods.count(_DRIVERS, node) > 0)
    upgrades = build_upgrades(runtime, options.namespace, charge)
    stack = Stack(
        runtime,
        charge,
        writer,
        standings,
        platform=Platform(namespace=options.namespace, images=options.images),
        surroundings=Surroundings(
            unlabelled=lambda: labelling.book.outstanding,
            host_problems=lambda: labelling.book.problems,
            upgrade=lambda: upgrades.report(THE_POLICYS),
            drivers_pending=lambda: drivers.pending(),  # noqa: PLW0108 - it is made below
            openshift=openshift,
        ),
        now=now,
    )
    drivers = Drivers(runtime, charge, writer, standings, stack.platform)
    charge.drivers = drivers
    reporter = DriverReporter(
        runtime, charge, drivers, standings, namespace=options.namespace, upgrade=upgrades.report, now=now
    )

    def policy_changed(old: StoredClusterPolicy | None, new: StoredClusterPolicy | None) -> None:
        if spec_changed(old, new):
            asked_otherwise()

    def daemonset_changed(old: DaemonSet | None, new: DaemonSet | None) -> None:
        if new is None and old is not None and owner_uid(old):
            labelling.enqueue_all()

    def pod_changed(old: OperandPod | None, new: OperandPod | None) -> None:
        for node in {*(_driver_on(old) if old else ()), *(_driver_on(new) if new else ())}:
            labelling.enqueue(node)

    asked_otherwise = calls(labelling.enqueue_all, upgrades.wake)
    charge.policies.on_change(policy_changed)
    standings.daemonsets.on_change(daemonset_changed)
    pods.on_change(pod_changed)
    labelling.book.on_settled(calls(stack.report, reporter.wake))
    labelling.book.on_problems(stack.report)
    drivers.book.on_change(asked_otherwise)
    upgrades.on_report = calls(stack.report, reporter.wake)
    rival.on_change(calls(asked_otherwise, stack.wake, drivers.wake, reporter.wake))
    openshift.on_change = calls(stack.wake, drivers.wake)
    _follow_monitors(runtime, writer, stack)
    _follow_owners(runtime, charge, upgrades)


def _follow_owners(runtime: Runtime, charge: Charge, upgrades: Upgrades) -> None:
    """Tell upgrades when nodes have come, gone or changed hands: once for many that do so at once."""
    pace = Pace(_PAUSE)

    async def tell(key: Key) -> Requeue | None:
        if later := pace.wait(key):
            return later
        pace.mark(key)
        upgrades.wake()
        return None

    controller = runtime.controller("upgrade-owners", tell, workers=1)
    controller.watch(charge.nodes, lambda _node: (_OWNERS,), when=lambda old, new: _owned(old) != _owned(new))


def _owned(node: Node | None) -> tuple[bool, str | None] | None:
    """Whose driver a node gets, as far as upgrades go."""
    if node is None:
        return None
    labels = node.metadata.labels
    return gpu_present(labels), labels.get(NodeLabel.DRIVER_OWNER)


def _driver_on(pod: OperandPod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if is_driver(pod) and pod.spec.node_name else ()


def _follow_monitors(runtime: Runtime, writer: Writer, stack: Stack) -> None:
    """Make ServiceMonitors for as long as the cluster knows what they are."""
    resource = LiveServiceMonitor.resource
    definitions = runtime.cache(CustomResourceDefinition, Selection(fields=f"metadata.name={resource.qualified_name}"))

    async def look(key: Key) -> None:
        found = definitions.at(key)
        established = found.condition(ESTABLISHED) if found is not None and not found.deleting else None
        served = established is not None and established.status == "True"
        if served is writer.knows(resource.kind):
            return
        if served:
            writer.follow(resource.kind, lambda _old, _new: stack.wake())
        else:
            writer.unfollow(resource.kind)
        stack.wake()

    runtime.controller("stack-monitors", look, workers=1).watch(definitions)
