"""The names that completion offers: of contexts, namespaces, pools, cards, nodes and pods that wait.

Only names are read, and not all of them: a person who presses Tab waits for the answer. What cannot be read is not
offered; nothing is said about it, since the shell would show it in the middle of the command line.
"""

import contextlib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_control_plane.kube.client import Client, Selection
    from gpu_control_plane.kube.objects import Object

_MOST_NAMES = 500
_TIMEOUT_SECONDS = 2.0


def contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    import os  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from gpu_control_plane.kube.errors import KubeError  # noqa: PLC0415
    from gpu_control_plane.kube.kubeconfig import read_kubeconfig  # noqa: PLC0415

    given = context.params.get("kubeconfig")
    files = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(given)] if given else files or [Path.home() / ".kube" / "config"]
    try:
        return _beginning(read_kubeconfig(paths, skip_missing=True).contexts, incomplete)
    except (KubeError, OSError):
        return []


def namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from gpu_control_plane.api.namespace import Namespace  # noqa: PLC0415

    return _names(context, Namespace, incomplete)


def pools(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from gpu_control_plane.api.gpupool import GPUPool  # noqa: PLC0415

    return _names(context, GPUPool, incomplete)


def devices(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from gpu_control_plane.api.gpudevice import GPUDevice  # noqa: PLC0415

    return _names(context, GPUDevice, incomplete)


def nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from gpu_control_plane.api.gpunodestate import GPUNodeState  # noqa: PLC0415

    return _names(context, GPUNodeState, incomplete)


def waiting_pods(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Pods without a node in the namespace: the others need no explanation."""
    from gpu_control_plane.api.pod import UNSCHEDULED_FIELDS, WaitingPod  # noqa: PLC0415
    from gpu_control_plane.kube.client import Selection  # noqa: PLC0415

    return _names(context, WaitingPod, incomplete, Selection(fields=UNSCHEDULED_FIELDS))


def _names(
    context: click.Context, kind: "type[Object]", incomplete: str, selection: "Selection | None" = None
) -> list[str]:
    import asyncio  # noqa: PLC0415

    import msgspec  # noqa: PLC0415

    from gpu_control_plane.cli.connection import Connection  # noqa: PLC0415
    from gpu_control_plane.kube.client import EVERYTHING  # noqa: PLC0415
    from gpu_control_plane.kube.errors import KubeError  # noqa: PLC0415

    fields = Connection.__dataclass_fields__.keys()
    given = {name: value for name, value in context.params.items() if name in fields and value}

    async def read(client: "Client") -> tuple[str, ...]:
        wanted = selection or EVERYTHING
        if kind.resource.namespaced:
            wanted = msgspec.structs.replace(wanted, namespace=given.get("namespace") or client.config.namespace)
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await client.names(kind, wanted, limit=_MOST_NAMES)

    with contextlib.suppress(KubeError, OSError, TimeoutError):
        return _beginning(Connection(**given).run(read), incomplete)
    return []


def _beginning(found: "Iterable[str]", incomplete: str) -> list[str]:
    return sorted(name for name in found if name.startswith(incomplete))
