"""The index of who may use which resource: the data of one ConfigMap, which the admission policy looks things up in.

One object for all pools, looked up by resource, keeps the cost of admitting a pod independent of the number of pools.
A key is the name of a resource with `_` for `/`, which is unambiguous since domains hold no `_`. A value is lines:

    pool training
    selector In team ml,vision      (all lines `selector` must hold; `selector Every` for an empty selector)
                                    (an empty line)
    namespace research
    account research/trainer
    user alice
    group ml-leads

Names that people choose freely are escaped, so that none can be read as a line of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpu_control_plane.api.access import Access
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.selectors import LabelSelector, Operator
from gpu_control_plane.rules.pool_validation import by_age

INDEX_NAME = "gpu-pool-access"
"""The ConfigMap, in our namespace."""
MAX_INDEX_BYTES = 900 * 1024
"""A ConfigMap holds 1 MiB; what is left is for its metadata."""

_POOL = "pool "
EVERY = "Every"
NEVER = "Never"

_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_./-]")
_OPERATORS = frozenset({Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST})


class AccessIndex(msgspec.Struct, frozen=True):
    """What the ConfigMap should hold."""

    data: dict[str, str]
    overfull: frozenset[str] = frozenset()
    """Pools whose lists do not fit: their resources are in the index, and only the verb `use` admits to them."""


def index_key(resource: str) -> str:
    """The key of a resource."""
    return resource.replace("/", "_")


def resource_of(key: str) -> str:
    """The resource of a key."""
    return key.replace("_", "/", 1)


def pool_in(text: str) -> str:
    """The pool that a value is about."""
    return text.partition("\n")[0].removeprefix(_POOL)


def access_index(
    pools: Iterable[GPUPool], retired: Mapping[str, str] | None = None, *, limit: int = MAX_INDEX_BYTES
) -> AccessIndex:
    """The index of these pools. Of two that claim one resource the older has it, as `pool_validation` says.

    `retired` are resources that no pool has any more while nodes still offer them, with the pool that had them: they
    stay in the index, closed. The oldest pools get their lists in first, if there is not room for all.
    """
    closed = {index_key(resource): _closed(pool) for resource, pool in (retired or {}).items()}
    owners: dict[str, GPUPool] = {}
    for pool in sorted(pools, key=by_age):
        for resource in pool.resource_names:
            owners.setdefault(index_key(resource), pool)
    data = closed | {key: _closed(pool.name) for key, pool in owners.items()}
    room = limit - sum(_size(key) + _size(text) for key, text in data.items())
    overfull = set()
    for key, pool in owners.items():
        text = entry(pool)
        if (more := _size(text) - _size(data[key])) > room:
            overfull.add(pool.name)
            continue
        data[key] = text
        room -= more
    return AccessIndex(dict(sorted(data.items())), frozenset(overfull))


def entry(pool: GPUPool) -> str:
    """The value for each of the pool's resources."""
    access = pool.spec.access
    return _closed(pool.name) if access is None else "\n".join([f"{_POOL}{pool.name}", *_lines(access), ""])


def escape(name: str) -> str:
    r"""A name on one line. CEL does the same: `name.replace('\\', '\\\\').replace('\n', '\\n')`."""
    return name.replace("\\", "\\\\").replace("\n", "\\n")


def _closed(pool: str) -> str:
    return f"{_POOL}{pool}\n\n"


def _lines(access: Access) -> Iterator[str]:
    if access.namespace_selector is not None:
        yield from _selector_lines(access.namespace_selector)
    yield ""
    yield from (f"namespace {name}" for name in sorted(access.namespaces))
    yield from sorted(f"account {one.namespace}/{escape(one.name)}" for one in access.service_accounts)
    yield from (f"user {escape(name)}" for name in sorted(access.users))
    yield from (f"group {escape(name)}" for name in sorted(access.groups))


def _selector_lines(selector: LabelSelector) -> Iterator[str]:
    if not selector.match_labels and not selector.match_expressions:
        yield f"selector {EVERY}"
    for key, value in sorted(selector.match_labels.items()):
        yield f"selector {Operator.IN} {_label(key)} {_label(value)}"
    for one in selector.match_expressions:
        if one.operator in _OPERATORS:
            yield f"selector {one.operator} {_label(one.key)} {','.join(map(_label, one.values))}"
        else:
            yield f"selector {NEVER}"


def _label(text: str) -> str:
    """A key or a value of a label. What no label can hold is written so that it equals none."""
    return _NOT_IN_LABELS.sub(lambda found: f"%{ord(found.group()):x}", text)


def _size(text: str) -> int:
    return len(text.encode())
