"""Reads the cluster as far as rendering depends on it: OpenShift, ServiceMonitors, ConfigMaps and DaemonSets."""

import msgspec

from gpu_control_plane.operator.openshift import OpenShiftWatch
from gpu_control_plane.operator.stack.live_caches import LiveCaches
from gpu_control_plane.operator.stack.render_input import Platform

_OPENSHIFT_KINDS = ("SecurityContextConstraints", "PrometheusRule")


class PlatformReader:
    """Reads the platform at the moment it is asked."""

    def __init__(self, base: Platform, live: LiveCaches, openshift: OpenShiftWatch) -> None:
        """`base` has what does not change while the process runs: namespace and images."""
        self.namespace = base.namespace
        self._base = base
        self._live = live
        self._openshift = openshift

    def current(self) -> Platform:
        return msgspec.structs.replace(
            self._base,
            service_monitors=self._live.knows("ServiceMonitor"),
            openshift=self._openshift.current(),
            config_maps=self._live.config_maps(),
            current_variants=self._live.variants(),
        )

    async def follow_openshift_kinds(self) -> None:
        """On OpenShift, watch the kinds that only it has, so that their objects can be written."""
        if self._openshift.current() is not None:
            for kind in _OPENSHIFT_KINDS:
                await self._live.follow(kind)
