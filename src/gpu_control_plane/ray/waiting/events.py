"""Events about what has waited for long. KubeRay has no words for it."""

from gpu_control_plane.kube.fields import OpenEnum


class WaitingEvent(OpenEnum):
    """Reasons of Events."""

    WORKERS = "RayWorkersWait", "Workers of a group have waited for cards for long; the note says why."
    JOB = "RayJobWaits", "A RayJob has waited for long, and does not run yet; the note says why."
    SERVICE = "RayServiceNotReady", "A RayService has not answered requests for long; the note says why."
