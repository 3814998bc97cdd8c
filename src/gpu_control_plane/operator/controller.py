"""The operator as a part of the controller process: builds its parts and connects them.

Each part watches the objects that it needs by itself. What another part has computed from them is watched by the
signal of that part:

- `NVIDIALeaseWatch` (which operator may write), `GPUClusterWatch` (whether another stack hands out the same cards),
  `OpenShiftWatch` (what the cluster's own objects say) and `DriverOwnership` (which NVIDIADriver has which nodes) wake
  `ActivePolicy`;
- `ActivePolicy` wakes all that acts by it: labels, stack, NVIDIADrivers, handovers of nodes, upgrades, statuses;
- `DriverPods` (on which nodes a driver runs) wakes labelling, and `GroupIndex` (whose policy a node is upgraded by)
  wakes upgrades;
- `LiveCaches` (kinds that a cluster may not serve) wakes the stack;
- statuses are written after each reconcile of the stack and of NVIDIADrivers, and are woken by readiness of DaemonSets,
  by labels that are missing, and by the progress of upgrades.
"""

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.kube import Cache, Runtime
from gpu_control_plane.kube.times import utc_now
from gpu_control_plane.operator.active_policy import ActivePolicy
from gpu_control_plane.operator.driver_pods import DriverPods
from gpu_control_plane.operator.driver_secrets import DriverSecrets
from gpu_control_plane.operator.drivers.controller import DriversController
from gpu_control_plane.operator.drivers.handover import DriverOwnership
from gpu_control_plane.operator.drivers.ownership_index import OwnershipIndex
from gpu_control_plane.operator.drivers.status_reporter import DriverStatusReporter
from gpu_control_plane.operator.gpu_cluster import GPUClusterWatch
from gpu_control_plane.operator.labelling.controller import LabellingController
from gpu_control_plane.operator.nvidia_lease import NVIDIALeaseWatch
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.stack.apply import ObjectWriter
from gpu_control_plane.operator.stack.controller import StackController, StatusSources
from gpu_control_plane.operator.stack.daemonset_readiness import DaemonSetReadiness
from gpu_control_plane.operator.stack.live_caches import LiveCaches, follow_service_monitors
from gpu_control_plane.operator.stack.platform import PlatformReader
from gpu_control_plane.operator.stack.render_input import Platform
from gpu_control_plane.operator.upgrade.controller import UpgradeController, UpgradeTiming
from gpu_control_plane.operator.upgrade.groups import CLUSTER_POLICY
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces

_IMAGE_SUFFIX: Final = "_IMAGE"


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the operator."""

    namespace: str = DEFAULT_NAMESPACE
    """Where operands run."""
    images: Mapping[str, str] = {}
    """Environment variables that name images."""
    upgrade_timing: UpgradeTiming = UpgradeTiming()
    trusted: TrustedNamespaces = TrustedNamespaces()
    """Where the Lease of NVIDIA's operator is believed, beside `namespace`."""


def images_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that name images, such as DRIVER_IMAGE."""
    return {name: value for name, value in environment.items() if name.endswith(_IMAGE_SUFFIX) and value}


def build(runtime: Runtime, settings: OperatorSettings | None = None, *, now: Callable[[], datetime] = utc_now) -> None:
    """Add the operator to a process."""
    settings = settings or OperatorSettings(images=images_from(os.environ))
    namespace = settings.namespace
    stored_drivers = runtime.cache(StoredNVIDIADriver)

    lease = NVIDIALeaseWatch(runtime, _believed(settings, runtime.cache(StoredClusterPolicy)), now=now)
    openshift = OpenShiftWatch(runtime)
    readiness = DaemonSetReadiness(runtime, namespace)
    ownership = DriverOwnership(OwnershipIndex(stored_drivers, runtime.cache(Node)), readiness)
    active_policy = ActivePolicy(runtime, lease, ownership, openshift=openshift, gpu_clusters=GPUClusterWatch(runtime))
    live = LiveCaches(runtime, namespace)
    follow_service_monitors(runtime, live)
    writer = ObjectWriter(runtime.client, live)
    interval = settings.upgrade_timing.limits.missing_secret_interval.total_seconds()
    secrets = DriverSecrets(runtime.client, namespace, interval=interval)
    platform = PlatformReader(Platform(namespace=namespace, images=settings.images), live, openshift, secrets)

    labelling = LabellingController(runtime, active_policy, DriverPods(readiness.pods))
    upgrades = UpgradeController(runtime, namespace, active_policy, secrets, settings.upgrade_timing)
    drivers = DriversController(
        runtime,
        stored_drivers,
        active_policy,
        ownership=ownership,
        writer=writer,
        operands=readiness,
        platform=platform,
    )
    changed = (labelling.index.changed, upgrades.progress_changed)
    StackController(
        runtime,
        active_policy,
        writer,
        readiness,
        platform=platform,
        sources=StatusSources(
            unlabelled=lambda: labelling.index.pending,
            host_problems=lambda: labelling.index.host_problems,
            upgrade=partial(upgrades.report, CLUSTER_POLICY),
            drivers_pending=drivers.pending,
            changed=changed,
        ),
        now=now,
    )
    DriverStatusReporter(
        runtime,
        active_policy,
        drivers,
        readiness,
        namespace=namespace,
        upgrade=upgrades.report,
        changed=changed,
        now=now,
    )


def _believed(settings: OperatorSettings, policies: Cache[StoredClusterPolicy]) -> Callable[[str | None], bool]:
    """Whether a Lease of NVIDIA's operator counts in a namespace: also in the one that a ClusterPolicy names, since no
    user may write its status, and NVIDIA's operator writes there where it runs."""

    def believed(namespace: str | None) -> bool:
        known = namespace == settings.namespace or settings.trusted.include(namespace)
        return known or any(policy.status.namespace == namespace for policy in policies)

    return believed
