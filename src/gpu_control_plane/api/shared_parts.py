"""Tables of the fields of a spec whose parts occur in several places: described once, and the places point there."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect as shape

from gpu_control_plane.api.markdown import default, field_type, fields, table, text, well_known
from gpu_control_plane.kube.schema import first_paragraph, structural

FIELD_HEAD: Final = ("Field", "Type", "Default", "Meaning")

type Struct = type[msgspec.Struct]


class SharedParts:
    """The structs that occur more than once in these specs, and `bases`: parts whose fields others have, too.

    Places point to those of `leave_out` as well, which the page describes elsewhere under their own name.
    """

    def __init__(
        self, specs: Sequence[Struct], bases: tuple[Struct, ...] = (), leave_out: tuple[Struct, ...] = ()
    ) -> None:
        counts = Counter(inner for spec in specs for inner in _occurrences(spec))
        self._bases = bases
        self._elsewhere = leave_out
        self._shared = frozenset({*bases, *leave_out, *(part for part, count in counts.items() if count > 1)})

    def __contains__(self, part: Struct) -> bool:
        return part in self._shared

    def chapters(self) -> Iterator[str]:
        """Each of them, by name."""
        for part in sorted(self._shared - {*self._elsewhere}, key=lambda part: part.__name__):
            yield f"### {part.__name__}\n"
            yield from self.part(part)

    def part(self, part: Struct) -> Iterator[str]:
        """One struct: what it is, and its fields."""
        yield f"{text(first_paragraph(part))}\n"
        if base := self._base(part):
            yield f"It takes what an [{base.__name__}](#{base.__name__.lower()}) takes. Its own:\n"
        yield from table(FIELD_HEAD, self.rows(part))

    def rows(self, part: Struct, path: str = "") -> Iterator[tuple[str, str, str, str]]:
        """The fields that a struct does not share with its base; parts that occur only here are spread out."""
        schema, base = structural(part), self._base(part)
        known = structural(base)["properties"] if base else {}
        for field in fields_of(part):
            name = field.encode_name
            about = schema["properties"][name]
            if known.get(name) == about:
                continue
            mark = " \\*" if name in schema.get("required", ()) else ""
            inner = struct_in(field.type)
            yield f"`{path}{name}`{mark}", self._type(about, inner), default(about), text(about["description"])
            place = f"{path}{name}{'[]' if about.get('type') == 'array' else ''}"
            if inner is None:
                whole = about.get("items", about)
                yield from fields(whole, place) if well_known(whole) is None else ()
            elif inner not in self:
                yield from self.rows(inner, f"{place}.")

    def _type(self, about: dict[str, Any], inner: Struct | None) -> str:
        if inner is None or inner not in self:
            return field_type(about)
        link = f"[{inner.__name__}](#{inner.__name__.lower()})"
        return f"list of {link}" if about["type"] == "array" else link

    def _base(self, part: Struct) -> Struct | None:
        return next((base for base in self._bases if issubclass(part, base) and part is not base), None)


def fields_of(part: Struct) -> tuple[shape.Field, ...]:
    node = shape.type_info(part)
    assert isinstance(node, shape.StructType)  # noqa: S101 - that is what a Struct's type is
    return node.fields


def struct_in(node: shape.Type) -> Struct | None:
    """The struct that a field holds, alone or in a list."""
    match node:
        case shape.StructType():
            return node.cls
        case shape.Metadata():
            return struct_in(node.type)
        case shape.VarTupleType():
            return struct_in(node.item_type)
        case shape.UnionType():
            return next(filter(None, map(struct_in, node.types)), None)
        case _:
            return None


def _occurrences(part: Struct) -> Iterator[Struct]:
    for field in fields_of(part):
        if inner := struct_in(field.type):
            yield inner
            yield from _occurrences(inner)
