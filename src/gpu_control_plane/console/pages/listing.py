"""Lists: filtered, sorted and cut into pages on the server, with all of it in the URL."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request

PAGE: Final = 50


class Listing[T](msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list, and the URLs of the others."""

    rows: list[T]
    total: int
    """Of all rows that the filter lets through."""
    page: int
    pages: int
    sort: str
    descending: bool
    path: str
    query: Mapping[str, str]

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.page * PAGE, self.total)

    @property
    def filter(self) -> str:
        return self.query.get("filter", "")

    @property
    def filtered(self) -> bool:
        """Whether something keeps rows away."""
        return any(self.query.get(name) for name in self.query if name not in {"sort", "page"})

    def sorted_by(self, name: str) -> str:
        """The URL of the first page in this order; the other way round if it is so already."""
        down = self.sort == name and not self.descending
        return self._url(sort=f"-{name}" if down else name, page="")

    def at_page(self, number: int) -> str:
        return self._url(page=str(number))

    def with_(self, **changes: str) -> str:
        """The URL of the first page with other filters."""
        return self._url(page="", **changes)

    def _url(self, **changes: str) -> str:
        query = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{self.path}?{urlencode(query)}" if query else self.path


def make_listing[T](
    request: Request,
    rows: Iterable[T],
    *,
    sorts: Mapping[str, Callable[[T], Any]],
    default: str,
    words: Callable[[T], Iterable[object]],
) -> Listing[T]:
    """The page of the list that the URL asks for: `filter` has words that all must occur, `sort` a column."""
    query = dict(request.query_params)
    wanted = query.get("filter", "").lower().split()
    if wanted:
        rows = [row for row in rows if _matches(wanted, words(row))]
    sort = query.get("sort", default)
    descending = sort.startswith("-")
    name = sort.removeprefix("-")
    if name not in sorts:
        name, descending = default.removeprefix("-"), default.startswith("-")
    found = sorted(rows, key=lambda row: _orderable(sorts[name](row)), reverse=descending)
    pages = max(1, -(-len(found) // PAGE))
    asked = query.get("page", "")
    page = min(max(int(asked), 1), pages) if asked.isdecimal() else 1
    return Listing(
        rows=found[(page - 1) * PAGE : page * PAGE],
        total=len(found),
        page=page,
        pages=pages,
        sort=name,
        descending=descending,
        path=request.url.path,
        query=query,
    )


def _matches(wanted: list[str], words: Iterable[object]) -> bool:
    text = " ".join(str(word) for word in words if word is not None).lower()
    return all(word in text for word in wanted)


def _orderable(value: Any) -> tuple[bool, Any]:
    """Rows without a value come first."""
    return value is not None, value
