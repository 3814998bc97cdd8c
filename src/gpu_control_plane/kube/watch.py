"""The changes of the objects of a kind, as an endless stream of small batches.

Without a version to resume from, the stream begins with all that exists: as a streaming list where the API server has
it, else in pages. Both look the same to the reader: changes, then a batch marked `synced`, then live changes.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol, cast

import aiohttp
import msgspec

from gpu_control_plane.kube.client import EVERYTHING, PAGE, Client, Selection, decoder
from gpu_control_plane.kube.errors import BadRequest, Invalid, WatchBroken, from_status
from gpu_control_plane.kube.objects import Key, Object
from gpu_control_plane.kube.transport import Call

# How many events are handled before other tasks run: a stall of the event loop of at most about 10 ms.
SLICE = 64
_INITIAL_END = "k8s.io/initial-events-end"


class Batch[T: Object](msgspec.Struct):
    """Some changes in order, and the version from which a watch continues behind them."""

    upserts_and_deletes: list[tuple[T, bool]]
    """Each object with whether it was deleted."""
    resource_version: str | None = None
    synced: bool = False
    """True on the one batch that completes what existed at the start."""
    unreadable: tuple[Key, ...] = ()
    """Objects that exist and do not fit their type: what is known of them from before still counts."""


class Source[T: Object](Protocol):
    """Where a cache gets its changes from: an API server, or a simulated one."""

    def changes(self, since: str | None) -> AsyncGenerator[Batch[T]]:
        """All changes after `since`, or, with None, all that exists and then all changes. Raises `Gone` when
        `since` is too old; ends without error when the server closes the watch in good order."""
        ...


class ApiSource[T: Object]:
    """Changes from a real API server."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        selection: Selection = EVERYTHING,
        *,
        silence: float = 130.0,
        page_size: int = PAGE,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._selection = selection
        self._silence = silence
        self._page_size = page_size
        self._rng = rng or random.Random()
        self._streaming = True

    async def changes(self, since: str | None) -> AsyncGenerator[Batch[T]]:
        if since is None and self._streaming:
            try:
                async with aclosing(self._watch(None)) as batches:
                    async for batch in batches:
                        yield batch
            except (BadRequest, Invalid) as error:
                if "sendInitialEvents" not in error.message:
                    raise
                # Streaming lists are switched off in this API server, and stay so while it runs.
                self._streaming = False
            else:
                return
        if since is None:
            async with aclosing(self._list()) as batches:
                async for batch in batches:
                    yield batch
                    since = batch.resource_version
        async with aclosing(self._watch(since)) as batches:
            async for batch in batches:
                yield batch

    async def _list(self) -> AsyncGenerator[Batch[T]]:
        async with aclosing(self._client.pages(self._kind, self._selection, limit=self._page_size)) as pages:
            async for page in pages:
                if page.unreadable:
                    yield Batch([], unreadable=tuple(page.unreadable))
                for start in range(0, len(page.items), SLICE):
                    yield Batch([(item, False) for item in page.items[start : start + SLICE]])
                    await asyncio.sleep(0)
                if not page.metadata.continue_:
                    yield Batch([], page.metadata.resource_version, synced=True)

    async def _watch(self, since: str | None) -> AsyncGenerator[Batch[T]]:
        resource = self._kind.resource
        # The API server ends each watch after a while; random lifetimes keep thousands from reconnecting at once.
        lifetime = int(self._rng.uniform(300, 600))
        params = self._selection.params() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(lifetime),
        }
        if since is None:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        else:
            params["resourceVersion"] = since
        call = Call(
            method="GET",
            path=resource.path(self._selection.namespace),
            verb="watch",
            resource=resource.qualified_name,
            params=params,
        )
        events = self._client.metrics.watch_events.labels(resource.qualified_name)
        async with self._client.transport.stream(call, silence=self._silence) as content:
            async for lines in _line_slices(content):
                events.inc(len(lines))
                yield self._decode(lines)
                await asyncio.sleep(0)

    def _decode(self, lines: list[bytes]) -> Batch[T]:
        decode_event = _EVENT.decode
        decode_object = decoder(self._kind).decode
        batch = Batch[T]([])
        changes = batch.upserts_and_deletes
        for line in lines:
            event = decode_event(line)
            match event.type:
                case "ADDED" | "MODIFIED" | "DELETED":
                    deleted = event.type == "DELETED"
                    try:
                        found = decode_object(event.object)
                    except msgspec.ValidationError as error:
                        # Its metadata can be read, and of a deletion nothing else matters.
                        found = cast("T", self._client.pass_over(self._kind, event.object, error))
                        if not deleted:
                            batch.unreadable += (found.key,)
                            continue
                    changes.append((found, deleted))
                    batch.resource_version = found.metadata.resource_version
                case "BOOKMARK":
                    bookmark = _BOOKMARK.decode(event.object)
                    batch.resource_version = bookmark.metadata.resource_version
                    batch.synced = batch.synced or bookmark.metadata.annotations.get(_INITIAL_END) == "true"
                case _:
                    status = _STATUS.decode(event.object)
                    raise from_status(status.code, status.reason, status.message)
        return batch


async def _line_slices(content: aiohttp.StreamReader) -> AsyncGenerator[list[bytes]]:
    """Whole lines, at most `SLICE` at a time. A stream that ends inside a line was cut."""
    rest = b""
    async for chunk in content.iter_any():
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for start in range(0, len(lines), SLICE):
            yield lines[start : start + SLICE]
    if rest:
        raise WatchBroken("the watch was cut in the middle of an event")


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 500
    reason: str = ""
    message: str = ""


_EVENT = msgspec.json.Decoder(_Event)
_BOOKMARK = msgspec.json.Decoder(Object)
_STATUS = msgspec.json.Decoder(_Status)
