"""Takes a snapshot: one list of each kind that the checks need, several at a time.

What may not be read, or what the API server does not answer, is noted as unread with the reason. A kind that is not
installed has no objects; our own are missed by a check.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from gpu_control_plane.api import DEFINITIONS
from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicy
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.api.pod import Pod, WaitingPod
from gpu_control_plane.api.ray.names import LEASE as KUBERAY_LEASE
from gpu_control_plane.api.ray.view import RayClusterView, RayJobView, RayServiceView
from gpu_control_plane.doctor.kinds import (
    CheckedNode,
    EndpointSlice,
    PolicyBinding,
    ReportMeta,
    RuntimeClass,
    VersionedCRD,
)
from gpu_control_plane.doctor.snapshot import Snapshot, Source
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from gpu_control_plane.kube.client import EVERYTHING, Client, Selection
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.errors import ApiError, Forbidden, NotFound, ServerError
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.gather_all import gather_all
from gpu_control_plane.kube.lease_watch import TimedLease, lease_selection
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.replicas import Deployment
from gpu_control_plane.operator.nvidia_lease import LEASE_SELECTION
from gpu_control_plane.operator.views import DaemonSet
from gpu_control_plane.pools.access import IndexConfigMap
from gpu_control_plane.pools.explanation_reads import UNSCHEDULED
from gpu_control_plane.rules.access_index import INDEX_NAME
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS

ALL: Final = frozenset(Source)

type Progress = Callable[[Source], None]
type _Read = Callable[[Client, str], Awaitable[Sequence[Object]]]
"""Given the namespace of our programs."""

_AT_ONCE: Final = 6
_PAGE: Final = 2000
"""Objects in a page of a list: larger than a controller's, as a person waits for all of them."""
_CRD_NAMES: Final = (*(definition.name for definition in DEFINITIONS), NodeFeature.resource.qualified_name)


async def read_snapshot(
    client: Client,
    now: datetime,
    namespace: str,
    *,
    sources: Collection[Source] = ALL,
    before: Snapshot | None = None,
    progress: Progress = lambda _source: None,
) -> Snapshot:
    """The cluster now, as far as `sources` name it; our programs run in `namespace`. With `before`, what is not
    read again is taken from there."""
    limit = asyncio.Semaphore(_AT_ONCE)
    found: dict[str, Sequence[Object]] = {}
    unread: dict[Source, str] = dict(before.unread) if before is not None else {}

    async def read(source: Source) -> None:
        async with limit:
            unread.pop(source, None)
            try:
                found[source] = await _READS[source](client, namespace)
            except (Forbidden, ServerError) as error:
                unread[source] = _why(source, error)
            progress(source)

    await gather_all(map(read, [source for source in Source if source in sources]))
    kept: Mapping[str, Sequence[Object]] = (
        {source: getattr(before, source) for source in Source if source not in sources} if before is not None else {}
    )
    missing = {source: f"{source.meaning} were not read" for source in Source if source not in sources}
    return Snapshot(
        now=now,
        namespace=namespace,
        unread={**({} if before is not None else missing), **unread},
        before=before,
        **{**kept, **found},  # type: ignore[arg-type]  # each source reads the type of its field
    )


def _why(source: Source, error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return f"you may not read the {source.meaning}"
    return f"the {source.meaning} could not be read: {error}"


def _list(kind: type[Object], selection: Selection = EVERYTHING) -> _Read:
    async def read(client: Client, _namespace: str) -> Sequence[Object]:
        try:
            return [item async for page in client.pages(kind, selection, limit=_PAGE) for item in page.items]
        except NotFound:
            return ()  # the kind is not installed

    return read


def _ours(kind: type[Object]) -> _Read:
    """Those of our namespace."""

    async def read(client: Client, namespace: str) -> Sequence[Object]:
        return await _list(kind, Selection(namespace=namespace))(client, namespace)

    return read


def _named(*wanted: tuple[type[Object], str]) -> _Read:
    """Single objects, where a list would bring much that is of no use; where they have a namespace, ours."""

    async def read(client: Client, namespace: str) -> Sequence[Object]:
        found = []
        for kind, name in wanted:
            try:
                found.append(await client.get(kind, name, namespace if kind.resource.namespaced else None))
            except NotFound:
                continue
        return found

    return read


_READS: Final[Mapping[Source, _Read]] = {
    Source.CRDS: _named(*((CustomResourceDefinition, name) for name in _CRD_NAMES)),
    Source.DEPLOYMENTS: _ours(Deployment),
    Source.DAEMONSETS: _ours(DaemonSet),
    Source.PODS: _ours(Pod),
    Source.LEASES: _ours(TimedLease),
    Source.NVIDIA_LEASES: _list(TimedLease, LEASE_SELECTION),
    Source.WEBHOOKS: _named((ValidatingWebhookConfiguration, WEBHOOKS), (MutatingWebhookConfiguration, WEBHOOKS)),
    Source.ENDPOINTS: _ours(EndpointSlice),
    Source.POLICIES: _list(ValidatingAdmissionPolicy),
    Source.BINDINGS: _list(PolicyBinding),
    Source.INDEX: _named((IndexConfigMap, INDEX_NAME)),
    Source.REPORTS: _ours(ReportMeta),
    Source.CARDS: _list(GPUDevice),
    Source.STATES: _list(GPUNodeState),
    Source.POOLS: _list(GPUPool),
    Source.NODES: _list(CheckedNode),
    Source.WAITING: _list(WaitingPod, UNSCHEDULED),
    Source.FAILED: _list(Pod, Selection(fields="status.phase=Failed")),
    Source.REFUSALS: _list(Event, Selection(fields="reason=FailedCreate")),
    Source.CLUSTER_POLICIES: _list(StoredClusterPolicy),
    Source.DRIVERS: _list(StoredNVIDIADriver),
    Source.RUNTIME_CLASSES: _list(RuntimeClass),
    Source.KUBERAY_LEASES: _list(TimedLease, lease_selection(KUBERAY_LEASE)),
    Source.RAY_CRDS: _named(
        *((VersionedCRD, kind.resource.qualified_name) for kind in (RayClusterView, RayJobView, RayServiceView))
    ),
    Source.RAY_CLUSTERS: _list(RayClusterView),
    Source.RAY_JOBS: _list(RayJobView),
    Source.RAY_SERVICES: _list(RayServiceView),
}
