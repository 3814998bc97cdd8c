"""The support bundle: what those who help need to see of a cluster, in one file, and no secrets.

It has our objects as they are, the Nodes, the Pods of our namespace with the end of their logs, Events about our
objects, versions, and what the checks found. Secrets are never read; everything else goes through `scrubbing`.
"""

import asyncio
import io
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gpu_control_plane import __version__
from gpu_control_plane.api.admissionpolicy import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpunodestate import GPUNodeState
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import GROUP
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nodefeature import NodeFeature
from gpu_control_plane.api.nvidia import ClusterPolicy, NVIDIADriver
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.doctor.cluster import Examined
from gpu_control_plane.doctor.kinds import EndpointSlice
from gpu_control_plane.doctor.scrubbing import scrub_object, scrub_text
from gpu_control_plane.installation.policies import POLICY_NAMES
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, KubeError
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.replicas import Deployment
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.operator.views import DaemonSet
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS

MAX_LOG_BYTES: Final = 256 * 1024
"""Of one container."""
MAX_LOGGED_PODS: Final = 60
"""Those that do not run come first, then the controller's."""
MAX_OBJECTS: Final = 5_000
"""Of one kind; the file says where more were left out."""

_LOG_LINES: Final = 2_000
_PAGE: Final = 500
_AT_ONCE: Final = 4
_OURS: Final = frozenset({"GPUDevice", "GPUNodeState", "GPUPool", "ClusterPolicy", "NVIDIADriver", "Lease"})

_KINDS: Final[tuple[type[Object], ...]] = (
    GPUDevice,
    GPUNodeState,
    GPUPool,
    Node,
    ClusterPolicy,
    NVIDIADriver,
    NodeFeature,
    Pod,
    Deployment,
    DaemonSet,
    EndpointSlice,
    TimedLease,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
    MutatingWebhookConfiguration,
    Event,
)
"""What is in a bundle; ConfigMaps and Secrets are not."""
_IN_OUR_NAMESPACE: Final = frozenset({NodeFeature, Pod, Deployment, DaemonSet, EndpointSlice, TimedLease})
"""Of these only what is there; the others are looked for everywhere."""

type Item = dict[str, Any]


async def write_bundle(
    client: Client, examined: Examined, path: Path, *, progress: Callable[[str], None] = lambda _text: None
) -> None:
    """Write the bundle to `path`. What may not be read is named in its `notes.txt`."""
    files = await collect(client, examined, progress)
    await asyncio.to_thread(path.write_bytes, packed(files, time.time()))


async def collect(
    client: Client, examined: Examined, progress: Callable[[str], None] = lambda _text: None
) -> dict[str, bytes]:
    """The files of the bundle, by their path in it."""
    notes: list[str] = []
    files: dict[str, bytes] = {"doctor.json": _json(scrub_object(msgspec.to_builtins(examined.examination)))}
    files["versions.json"] = _json({"client": __version__, "server": await _version(client, notes)})
    own = examined.snapshot.namespace
    for kind in _KINDS:
        progress(kind.resource.plural)
        items = await _items(client, kind, own, notes)
        if items:
            files[f"objects/{kind.resource.qualified_name}.json"] = _json(items)
    for pod, container in _logged(examined.snapshot.pods):
        progress(f"log of {pod}")
        files |= await _log(client, own, pod, container, notes)
    files["notes.txt"] = "".join(f"{note}\n" for note in notes or ["Nothing was left out."]).encode()
    return files


def packed(files: Mapping[str, bytes], now: float) -> bytes:
    """The files as a tar.gz, in a folder of their own."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"gpu-support/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(now), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


async def _items(client: Client, kind: type[Object], own: str, notes: list[str]) -> list[Item]:
    """The objects of a kind as the API server has them, scrubbed page by page."""
    found: list[Item] = []
    params = {"limit": str(_PAGE)}
    resource = kind.resource
    while True:
        call = Call(
            method="GET",
            path=resource.path(own if kind in _IN_OUR_NAMESPACE else None),
            verb="list",
            resource=resource.qualified_name,
            params=params,
            compressed=True,
        )
        try:
            page = msgspec.json.decode(await client.transport.send(call))
        except ApiError as error:
            notes.append(f"{resource.qualified_name}: not read: {scrub_text(str(error))}")
            return found
        found += [scrub_object(item) for item in page.get("items") or () if _concerns_us(kind, item, own)]
        token = page.get("metadata", {}).get("continue")
        if not token:
            return found
        if len(found) >= MAX_OBJECTS:
            notes.append(f"{resource.qualified_name}: only the first {len(found)} are here")
            return found
        params = {**params, "continue": token}


def _concerns_us(kind: type[Object], item: Item, own: str) -> bool:
    """Of kinds that others use too, only what is ours or about ours."""
    metadata = item.get("metadata", {})
    if kind is Event:
        about = item.get("regarding") or {}
        return (
            about.get("kind") in _OURS
            or metadata.get("namespace") == own
            or GROUP in str(item.get("note", ""))
            or about.get("kind") == "Node"
        )
    if kind in {ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding}:
        return metadata.get("name") in POLICY_NAMES
    if kind in {ValidatingWebhookConfiguration, MutatingWebhookConfiguration}:
        return bool(metadata.get("name") == WEBHOOKS)
    return True


def _logged(pods: Sequence[Pod]) -> list[tuple[str, str]]:
    """The containers whose logs are taken: of pods that do not run first, then of the controller, then of agents."""
    order = {"controller": 0, "agent": 2}
    ranked = sorted(pods, key=lambda pod: (pod.ready, order.get(pod.component or "", 1), pod.name))
    return [(pod.name, each.name) for pod in ranked[:MAX_LOGGED_PODS] for each in pod.spec.all_containers]


async def _log(client: Client, namespace: str, pod: str, container: str, notes: list[str]) -> dict[str, bytes]:
    """The end of a container's log, and of the one before its last restart."""
    files = {}
    for previous in (False, True):
        params = {"container": container, "tailLines": str(_LOG_LINES), "limitBytes": str(MAX_LOG_BYTES)}
        call = Call(
            method="GET",
            path=Pod.resource.path(namespace, pod, "log"),
            verb="get",
            resource="pods/log",
            params={**params, "previous": "true"} if previous else params,
        )
        try:
            text = await client.transport.send(call)
        except KubeError as error:
            if not previous:
                notes.append(f"log of {pod}/{container}: not read: {scrub_text(str(error))}")
            continue
        name = f"logs/{pod}/{container}{'.previous' if previous else ''}.log"
        files[name] = scrub_text(text.decode(errors="replace")).encode()
    return files


async def _version(client: Client, notes: list[str]) -> object:
    call = Call(method="GET", path="/version", verb="get", resource="version")
    try:
        return msgspec.json.decode(await client.transport.send(call))
    except KubeError as error:
        notes.append(f"version of the API server: not read: {error}")
        return None


def _json(content: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=1)
