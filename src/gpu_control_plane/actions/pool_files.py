"""Pools as people write them into files, and whether the API server would take them."""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from gpu_control_plane.actions.forecast import with_pools
from gpu_control_plane.actions.plan import Refusal
from gpu_control_plane.actions.preview import Preview, as_written, preview_pool
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import ApiError, Forbidden
from gpu_control_plane.kube.written_yaml import BadYAML, read_yaml
from gpu_control_plane.views.fleet import Fleet

_ADMISSION = ("admission webhook", "ValidatingAdmissionPolicy")
"""What the API server names when a pool is refused, rather than whoever asks."""


class NotAPool(Exception):
    """A file, or a part of it, that is no GPUPool; the message says what is wrong."""


class WrittenPool(msgspec.Struct, frozen=True):
    """A pool as a file has it."""

    pool: GPUPool
    document: Mapping[str, object]


def read_pools(content: str | bytes, file: str) -> tuple[WrittenPool, ...]:
    """The pools of a YAML or JSON file; other kinds in it are an error."""
    try:
        documents = [each for each in read_yaml(content) if each is not None]
    except BadYAML as error:
        raise NotAPool(f"{file}: {error}") from error
    items = [item for document in documents for item in _items(document)]
    if not items:
        raise NotAPool(f"{file} has no GPUPool in it.")
    return tuple(_read(item, file) for item in items)


def _items(document: object) -> Iterable[object]:
    if isinstance(document, dict) and document.get("kind") == "List":
        items = document.get("items")
        return items if isinstance(items, list) else ()
    return (document,)


def _read(document: object, file: str) -> WrittenPool:
    resource = GPUPool.resource
    if not isinstance(document, dict):
        raise NotAPool(f"{file} has something in it that is no object.")
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) != (resource.api_version, resource.kind):
        what = "something that has no kind" if kind is None else f"a {kind} of {version or 'no apiVersion'}"
        raise NotAPool(f"{file} has {what} in it: only GPUPools of {resource.api_version} are shown.")
    try:
        pool = msgspec.convert(document, GPUPool)
    except msgspec.ValidationError as error:
        raise NotAPool(f"{file}: the GPUPool does not fit its schema: {error}.") from error
    if not pool.name:
        raise NotAPool(f"{file}: a GPUPool has no metadata.name.")
    return WrittenPool(pool, document)


class Checked(msgspec.Struct, frozen=True):
    """What the API server says about a pool."""

    refusal: Refusal | None = None
    unchecked: str | None = None
    """Why it could not be asked."""


async def check_pool(client: Client, written: WrittenPool, before: GPUPool | None) -> Checked:
    """Have the API server check the pool against its schema, rules and webhooks. Nothing is written."""
    body = {"metadata": {}, "spec": written.document.get("spec", {})}
    version = before.metadata.resource_version if before is not None else None
    name = written.pool.name
    try:
        await client.validate(GPUPool, body, name=name, resource_version=version)
    except ApiError as error:
        if isinstance(error, Forbidden) and not any(words in error.message for words in _ADMISSION):
            return Checked(unchecked=f"its schema and rules were not checked: {error}")
        return Checked(refusal=Refusal(name=name, sentence=str(error)))
    return Checked()


class Previews(msgspec.Struct, frozen=True, kw_only=True):
    """What writing pools leads to, and why the API server could not be asked about some of them."""

    items: tuple[Preview, ...]
    unchecked: tuple[str, ...] = ()


async def preview_pools(client: Client, fleet: Fleet, pools: Iterable[WrittenPool], file: str) -> Previews:
    """What would change if the pools were written, each seen with those before it written. Nothing is written."""
    found, unchecked = [], []
    for written in pools:
        checked = await check_pool(client, written, fleet.pools.get(written.pool.name))
        if checked.unchecked is not None:
            unchecked.append(f"{written.pool.name}: {checked.unchecked}")
        preview = await asyncio.to_thread(preview_pool, fleet, written.pool, file=file)
        if checked.refusal is not None:
            known = {refusal.sentence for refusal in preview.refusals}
            more = () if any(each in checked.refusal.sentence for each in known) else (checked.refusal,)
            preview = msgspec.structs.replace(preview, refusals=(*preview.refusals, *more))
        found.append(preview)
        fleet = with_pools(fleet, (as_written(fleet, written.pool),))
    return Previews(items=tuple(found), unchecked=tuple(unchecked))
