"""What the operator of Ray is told: its switches and its waiting times."""

from datetime import timedelta
from typing import Annotated

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE
from gpu_control_plane.kube.fields import about
from gpu_control_plane.ray.options import RayOptions
from gpu_control_plane.rules.trusted_namespaces import TrustedNamespaces, kuberay_namespaces


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all controllers of Ray. The sentences of waiting times are in docs/settings.md."""

    options: RayOptions = RayOptions()
    namespace: str = DEFAULT_NAMESPACE
    """Where our own programs run."""
    trusted: TrustedNamespaces = kuberay_namespaces()
    """Where a Lease of KubeRay's operator is believed."""
    alone_in: str | None = None
    """The one namespace outside which nothing of Ray is read, not even that Lease; None if there is no such bound."""

    pod_retry: Annotated[
        timedelta, about("How long a RayCluster waits at most before it asks again for a pod that was refused.")
    ] = timedelta(minutes=1)
    gang_patience: Annotated[
        timedelta,
        about("How long a group of Ray workers that waits for cards lets younger groups that need fewer pass."),
    ] = timedelta(minutes=10)
    redis_cleanup_timeout: Annotated[
        timedelta,
        about("How long a deleted RayCluster waits for its keys in Redis to be removed, unless an annotation says so."),
    ] = timedelta(minutes=5)
    waiting_hint_after: Annotated[
        timedelta,
        about(
            "How long workers of Ray wait for cards, a RayJob to run or a RayService to answer until an Event says so."
        ),
    ] = timedelta(minutes=10)
    service_handover_patience: Annotated[
        timedelta,
        about("How long workers that a RayService has handed over may take to answer, before more of them go."),
    ] = timedelta(minutes=10)
    service_scheduling_patience: Annotated[
        timedelta,
        about("How long a worker of an upgraded RayService waits for its cards, before one of the old cluster goes."),
    ] = timedelta(seconds=30)
    job_status_check_timeout: Annotated[
        timedelta, about("How long Ray's dashboard may not answer until a RayJob fails.")
    ] = timedelta(minutes=5)
    job_end_grace: Annotated[
        timedelta, about("How long the submitter of a RayJob may go on after its job has ended.")
    ] = timedelta(minutes=5)
    submitter_grace: Annotated[
        timedelta,
        about("How long Ray's dashboard may not answer once the submitter of a RayJob has ended, until the job fails."),
    ] = timedelta(seconds=30)
