"""Reads the cluster as far as rendering depends on it: OpenShift, ServiceMonitors, ConfigMaps, Secrets, DaemonSets."""

from collections.abc import Iterable

import msgspec

from gpu_control_plane.kube import Requeue
from gpu_control_plane.operator.driver_secrets import DriverSecrets
from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.stack.live_caches import LiveCaches
from gpu_control_plane.operator.stack.render_input import Platform

_OPENSHIFT_KINDS = ("SecurityContextConstraints", "PrometheusRule")


class PlatformReader:
    """Reads the platform at the moment it is asked."""

    def __init__(self, base: Platform, live: LiveCaches, openshift: OpenShiftWatch, secrets: DriverSecrets) -> None:
        """`base` has what does not change while the process runs: namespace and images."""
        self.namespace = base.namespace
        self._base = base
        self._live = live
        self._openshift = openshift
        self._secrets = secrets

    async def current(self, secrets: Iterable[str]) -> Platform:
        """The platform now; `secrets` are those that drivers name."""
        missing = await self._secrets.missing(secrets)
        return msgspec.structs.replace(
            self._base,
            service_monitors=self._live.knows("ServiceMonitor"),
            openshift=self._openshift.current(),
            config_maps=self._live.config_maps(),
            missing_secrets=missing,
            current_variants=self._live.variants(),
        )

    def look_again(self, platform: Platform) -> Requeue | None:
        """When to read the platform again although nothing has changed: while a Secret is missing."""
        return Requeue(self._secrets.interval) if platform.missing_secrets else None

    async def follow_openshift_kinds(self) -> None:
        """On OpenShift, watch the kinds that only it has, so that their objects can be written."""
        if self._openshift.current() is not None:
            for kind in _OPENSHIFT_KINDS:
                await self._live.follow(kind)
