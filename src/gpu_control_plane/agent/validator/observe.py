"""Reads what the vendor-neutral checks need of the node. Reads files, and may block."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from gpu_control_plane.agent.cdi.edits import Edits
from gpu_control_plane.agent.cdi.spec import decode
from gpu_control_plane.agent.driver.host_paths import HostPaths
from gpu_control_plane.agent.kubelet.container_runtime import UNKNOWN, RuntimeSettings


class ToolkitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How containers get cards."""

    runtime: str | None = None
    """A GPU runtime of the container runtime that is known to work."""
    damaged: str | None = None
    """Why the CDI spec cannot be read."""
    devices: Mapping[str, tuple[str, ...]] = {}
    """The devices of the CDI spec, each with the files that it names and that do not exist."""
    cdi_enabled: bool | None = None
    """Whether the container runtime resolves CDI names; None if that is not known."""
    unread_folder: str | None = None
    """The folder of the CDI spec, if the container runtime does not look there."""
    missing_handler: str | None = None
    """A handler that pods need by their RuntimeClass, and that the container runtime does not have."""
    not_configured: str | None = None
    """Why the agent could not configure the container runtime, if it was told to."""


class PluginFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that are ordered, and what the kubelet lists."""

    ordered: frozenset[str] = frozenset()
    """Resources."""
    allocatable: Mapping[str, int] = {}
    """Units that the kubelet may allocate, by resource."""


def observe_cdi(
    spec: Path, host: HostPaths, *, runtime: str | None = None, settings: RuntimeSettings = UNKNOWN
) -> ToolkitFacts:
    """Which files that our CDI spec names do not exist on the host, and whether the runtime would read it at all."""
    folder, looked_at = str(spec.parent), settings.spec_dirs
    known = ToolkitFacts(
        runtime=runtime,
        cdi_enabled=settings.cdi_enabled,
        unread_folder=folder if looked_at is not None and not _among(folder, looked_at) else None,
    )
    try:
        found = decode(spec.read_bytes())
    except FileNotFoundError:
        return known
    except (OSError, ValueError) as error:
        return msgspec.structs.replace(known, damaged=f"{spec}: {error}")
    common = _missing(found.container_edits, host)
    devices = {
        device.name: tuple(dict.fromkeys((*common, *_missing(device.container_edits, host))))
        for device in found.devices
    }
    return msgspec.structs.replace(known, devices=devices)


def _among(folder: str, folders: Iterable[str]) -> bool:
    """Whether it is one of these; `/var/run` is the same as `/run`."""
    return folder.removeprefix("/var") in {each.removeprefix("/var").rstrip("/") for each in folders}


def _missing(edits: Edits, host: HostPaths) -> tuple[str, ...]:
    return tuple(path for path in _named(edits) if not host.local(path).exists())


def _named(edits: Edits) -> Iterable[str]:
    yield from (node.host_path or node.path for node in edits.device_nodes)
    yield from (mount.host_path for mount in edits.mounts)
    yield from (hook.path for hook in edits.hooks)
