"""Open pages follow changes: one stream a page, at most two messages a second, and only what reads differently.

A change of an object wakes the streams whose page shows its kind. What is rendered for one person is shared with those
who see the same, and rendering that takes long is done more rarely: the cost does not grow with the people who look.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import Scope

from gpu_control_plane.console.errors import NoSuchThing, Refused, TooManyRequests
from gpu_control_plane.console.fleet_caches import FleetCaches
from gpu_control_plane.console.metrics import ConsoleMetrics
from gpu_control_plane.console.page import Fragment, Page
from gpu_control_plane.console.texts import language_of
from gpu_control_plane.kube.objects import Object

_INTERVAL_SECONDS: Final = 0.5
_PING_SECONDS: Final = 15.0
_SHARE_OF_TIME: Final = 4.0
"""Rendering may take a quarter of the time: what took 250 ms is not rendered again within a second."""
_MOST_STREAMS: Final = 1000
_MOST_OF_A_PERSON: Final = 12
_MOST_SHARED: Final = 512

PING: Final = b": ping\n\n"


class Changes:
    """Which kinds have changed, for whoever waits."""

    def __init__(self, caches: FleetCaches) -> None:
        self._counts: defaultdict[type[Object], int] = defaultdict(int)
        self._waiting: defaultdict[type[Object], set[asyncio.Event]] = defaultdict(set)
        for kind, followed in caches.kinds.items():
            for cache in followed:
                cache.on_change(self._noter(kind))

    def counts(self, kinds: Iterable[type[Object]]) -> tuple[int, ...]:
        """How often the kinds have changed: equal counts mean that nothing has."""
        return tuple(self._counts[kind] for kind in kinds)

    async def after(self, kinds: Iterable[type[Object]], counts: tuple[int, ...]) -> None:
        """Wait until one of the kinds has changed since it was counted."""
        kinds = tuple(kinds)
        while self.counts(kinds) == counts:
            event = asyncio.Event()
            for kind in kinds:
                self._waiting[kind].add(event)
            try:
                await event.wait()
            finally:
                for kind in kinds:
                    self._waiting[kind].discard(event)

    def _noter(self, kind: type[Object]) -> Callable[[Object | None, Object | None], None]:
        def note(_old: Object | None, _new: Object | None) -> None:
            self._counts[kind] += 1
            if self._waiting[kind]:
                for event in self._waiting.pop(kind):
                    event.set()

        return note


class _Rendered(msgspec.Struct):
    counts: tuple[int, ...]
    text: str
    seconds: float


class LivePages:
    """Streams of all open pages."""

    def __init__(self, pages: Iterable[Page], changes: Changes, metrics: ConsoleMetrics) -> None:
        self._routes = [(compile_path(page.path), page) for page in pages if page.live]
        self._changes = changes
        self._metrics = metrics
        self._open: defaultdict[str, int] = defaultdict(int)
        self._shared: dict[Hashable, _Rendered] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all streams; browsers come back to whoever serves then."""
        self._stopping.set()

    def find(self, request: Request) -> tuple[Page, Request]:
        """The page that `?page=/nodes?model=H200` names, and the request as that page would get it."""
        path, _, query = request.query_params.get("page", "").partition("?")
        for (pattern, _format, convertors), page in self._routes:
            match = pattern.fullmatch(path)
            if match is not None:
                values = {name: convertors[name].convert(text) for name, text in match.groupdict().items()}
                return page, Request(_page_scope(request, path, query, values))
        raise NoSuchThing("There is no such page to follow.")

    async def stream(
        self,
        page: Page,
        request: Request,
        *,
        person: str,
        still_allowed: Callable[[], Awaitable[None]],
        ended: asyncio.Event,
    ) -> AsyncIterator[bytes]:
        """Messages until the page is closed, the session ends or the person may not see the page any more."""
        if self._open[person] >= _MOST_OF_A_PERSON or sum(self._open.values()) >= _MOST_STREAMS:
            raise TooManyRequests("Too many pages are open. Close some of them.")
        return self._messages(page, request, person, still_allowed, ended)

    async def _messages(
        self,
        page: Page,
        request: Request,
        person: str,
        still_allowed: Callable[[], Awaitable[None]],
        ended: asyncio.Event,
    ) -> AsyncIterator[bytes]:
        self._open[person] += 1
        self._metrics.streams.inc()
        kinds = tuple(dict.fromkeys(kind for fragment in page.live for kind in fragment.kinds))
        sent: dict[str, str] = {}
        number = 0
        try:
            while not (ended.is_set() or self._stopping.is_set()):
                counts = self._changes.counts(kinds)
                try:
                    await still_allowed()
                    parts, seconds = await self._changed_parts(page, request, sent)
                except Refused as refused:
                    # The browser asks again, and is told then.
                    yield f"event: ended\ndata: {refused.reason}\n\n".encode()
                    return
                if parts:
                    number += 1
                    yield _message(number, parts)
                pause = max(_INTERVAL_SECONDS, seconds * _SHARE_OF_TIME)
                if await self._ends_within(pause, ended):
                    return
                if not await self._changes_within(kinds, counts, ended):
                    yield PING
        finally:
            self._metrics.streams.dec()
            self._open[person] -= 1
            if not self._open[person]:
                del self._open[person]

    async def _changed_parts(
        self, page: Page, request: Request, sent: dict[str, str]
    ) -> tuple[list[tuple[Fragment, str]], float]:
        parts: list[tuple[Fragment, str]] = []
        seconds = 0.0
        for fragment in page.live:
            rendered = await self._render(fragment, request)
            seconds += rendered.seconds
            if sent.get(fragment.target) != rendered.text:
                sent[fragment.target] = rendered.text
                parts.append((fragment, rendered.text))
        return parts, seconds

    async def _render(self, fragment: Fragment, request: Request) -> _Rendered:
        counts = self._changes.counts(fragment.kinds)
        key = (fragment.target, await _shared_key(request)) if fragment.shared else None
        if key is not None and (held := self._shared.get(key)) is not None and held.counts == counts:
            return held
        begun = time.perf_counter()
        rendered = _Rendered(counts, await fragment.render(request), time.perf_counter() - begun)
        self._metrics.render_seconds.observe(rendered.seconds)
        if key is not None:
            if key not in self._shared and len(self._shared) >= _MOST_SHARED:
                del self._shared[next(iter(self._shared))]
            self._shared[key] = rendered
        return rendered

    async def _changes_within(
        self, kinds: tuple[type[Object], ...], counts: tuple[int, ...], ended: asyncio.Event
    ) -> bool:
        """Whether something changed, or the stream has to end, before the next ping is due."""
        return await _first_of(_PING_SECONDS, self._changes.after(kinds, counts), ended.wait(), self._stopping.wait())

    async def _ends_within(self, seconds: float, ended: asyncio.Event) -> bool:
        return await _first_of(seconds, ended.wait(), self._stopping.wait())


async def _first_of(seconds: float, *awaited: Awaitable[object]) -> bool:
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def _shared_key(request: Request) -> Hashable:
    """Who sees the same: the same URL, the same language, and the same part of the fleet."""
    scope = await request.app.state.caches.scope_of(request.state.viewer)
    return request.url.path, request.url.query, language_of(request), scope


def _page_scope(request: Request, path: str, query: str, values: dict[str, object]) -> Scope:
    return {
        **request.scope,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "path_params": values,
        "headers": Headers(request.headers).raw,
    }


def _message(number: int, parts: list[tuple[Fragment, str]]) -> bytes:
    """One unnamed message with all HTML, and a named one for each script's data."""
    html = "".join(
        f'<hx-partial hx-target="#{fragment.target}" hx-swap="{fragment.swap}">{text}</hx-partial>'
        for fragment, text in parts
        if fragment.event is None
    )
    messages = [_event(text, fragment.event) for fragment, text in parts if fragment.event is not None]
    if html:
        messages.insert(0, _event(html))
    return f"id: {number}\n".encode() + b"".join(messages)


def _event(data: str, name: str | None = None) -> bytes:
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return (f"event: {name}\n" if name is not None else "").encode() + lines.encode() + b"\n"
