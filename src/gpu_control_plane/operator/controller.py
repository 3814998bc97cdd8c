"""The operator as a part of the controller process: its parts, and who hears what from whom.

Each part watches what it needs by itself. Here is only what one part has to hear from another.
"""

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from gpu_control_plane.kube import Runtime
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.active_policy import Charge
from gpu_control_plane.operator.drivers.controller import Drivers
from gpu_control_plane.operator.drivers.predicates import owner_uid
from gpu_control_plane.operator.drivers.status_reporter import DriverReporter
from gpu_control_plane.operator.labelling import build_labelling
from gpu_control_plane.operator.news import DriverPods, calls, follow_governed, follow_monitors
from gpu_control_plane.operator.nvidia_lease import RivalWatch
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.stack.apply import Writer
from gpu_control_plane.operator.stack.controller import Stack, Surroundings
from gpu_control_plane.operator.stack.daemonset_readiness import Standings
from gpu_control_plane.operator.stack.render_input import Platform
from gpu_control_plane.operator.upgrade import build_upgrades
from gpu_control_plane.operator.upgrade.groups import THE_POLICYS
from gpu_control_plane.operator.views import DaemonSet

NAMESPACE: Final = "d8-gpu-operator"

_IMAGE: Final = "_IMAGE"


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
    namespace = options.namespace

    rival = RivalWatch(runtime, now=now)
    openshift = OpenShiftWatch(runtime)
    charge = Charge(runtime, rival, openshift.known)
    writer = Writer(runtime, namespace)
    standings = Standings(runtime, namespace)
    driver_pods = DriverPods(runtime, namespace)
    labelling = build_labelling(runtime, charge, driver_pods.on)
    upgrades = build_upgrades(runtime, namespace, charge)
    surroundings = Surroundings(
        unlabelled=lambda: labelling.book.outstanding,
        host_problems=lambda: labelling.book.problems,
        upgrade=partial(upgrades.report, THE_POLICYS),
        drivers_pending=lambda: drivers.pending(),  # noqa: PLW0108 - it is made below
        openshift=openshift,
    )
    platform = Platform(namespace=namespace, images=options.images)
    stack = Stack(runtime, charge, writer, standings, platform=platform, surroundings=surroundings, now=now)
    drivers = Drivers(runtime, charge, writer, standings, stack.platform)
    reporter = DriverReporter(
        runtime, charge, drivers, standings, namespace=namespace, upgrade=upgrades.report, now=now
    )

    def daemonset_changed(old: DaemonSet | None, new: DaemonSet | None) -> None:
        """Nodes need the name of an NVIDIADriver for as long as there is one of its DaemonSets."""
        came, went = new if old is None else None, old if new is None else None
        if any(item is not None and owner_uid(item) for item in (came, went)):
            labelling.enqueue_all()

    asked_otherwise = calls(labelling.enqueue_all, upgrades.wake)
    status_changed = calls(stack.report, reporter.wake)
    everything_changed = calls(asked_otherwise, stack.wake, drivers.wake, reporter.wake)
    charge.drivers = drivers
    charge.on_policy(asked_otherwise)
    drivers.book.on_change(asked_otherwise)
    standings.daemonsets.on_change(daemonset_changed)
    driver_pods.on_change(labelling.enqueue)
    labelling.book.on_settled(status_changed)
    labelling.book.on_problems(stack.report)
    upgrades.on_report = status_changed
    rival.on_change(everything_changed)
    openshift.on_change = everything_changed
    follow_monitors(runtime, writer, stack.wake)
    follow_governed(runtime, charge.nodes, upgrades.wake)
