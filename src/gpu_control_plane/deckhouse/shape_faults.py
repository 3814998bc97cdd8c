"""What msgspec says of a value that does not fit its type, as a sentence: where, what is wrong, what to write.

No value is repeated but one that is chosen from a list: what stands at a wrong place may be a secret.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAliasType, get_args, get_origin

import msgspec

_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(?P<field>.*)`$")
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>.*)`$")
_ENUM: Final = re.compile(r"^Invalid enum value (?P<value>.*)$", re.DOTALL)
_TYPE: Final = re.compile(r"^Expected `(?P<wanted>[^`]*)`, got `(?P<given>[^`]*)`$")
_FORM: Final = re.compile(r"^Expected `str` matching regex (?P<pattern>.*)$", re.DOTALL)
_LENGTH: Final = re.compile(r"^Expected `(?P<kind>[^`]*)` of length (?P<sign>>=|<=|==) (?P<bound>\d+)$")
_BOUND: Final = re.compile(r"^Expected `[^`]*` (?P<sign>>=|<=) (?P<bound>\S+)$")
_STEP: Final = re.compile(r"[A-Za-z0-9]+|\[[^\]]*\]")
_NOUNS: Final[Mapping[str, str]] = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a map of names and values",
    "null": "nothing",
}
_HOW: Final[Mapping[str, str]] = {
    "str": "put it in quotes",
    "array": "write [ ] around it",
    "object": "write names and values below it, or {} for none",
}
_UNITS: Final[Mapping[str, str]] = {"str": "characters", "array": "items"}
_LIMITS: Final[Mapping[str, str]] = {">=": "at least", "<=": "at most", "==": "exactly"}


class ShapeFault(NamedTuple):
    """A place, and a sentence about it that ends with a full stop or a question mark."""

    path: str
    why: str


def shape_fault(error: msgspec.ValidationError, kind: Any) -> ShapeFault:
    """What is wrong with a value that should have been of a kind."""
    match = _AT.match(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    if "`key` in" in str(error):
        return ShapeFault(path, "a name is no text here: put it in quotes.")
    return ShapeFault(path, _why(what, _type_at(kind, path)))


def _why(what: str, kind: Any) -> str:
    if unknown := _UNKNOWN.match(what):
        return _unknown(unknown["field"], [field.encode_name for field in _fields(kind)])
    if missing := _MISSING.match(what):
        return f"{missing['field']} is missing."
    if chosen := _ENUM.match(what):
        return f"{chosen['value']} is not known here: use {_either(_choices(kind))}."
    if wrong := _TYPE.match(what):
        return _wrong_type(wrong["wanted"], wrong["given"], kind)
    if form := _FORM.match(what):
        return f"this should be {_described(kind) or f'of the form {form["pattern"]}'}."
    return _limit(what)


def _limit(what: str) -> str:
    """A value that is too large, too small, too long or too short; or whatever our own parsers say."""
    if length := _LENGTH.match(what):
        verb = "allowed" if length["sign"] == "<=" else "needed"
        unit = _UNITS.get(length["kind"], "entries")
        many = f"{_LIMITS[length['sign']]} {length['bound']} {unit} are {verb}."
        return "this must not be empty." if (length["sign"], length["bound"]) == (">=", "1") else many
    if bound := _BOUND.match(what):
        return f"this has to be {_LIMITS[bound['sign']]} {bound['bound']}."
    return f"{what.rstrip('.')}."


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}." if known else "remove it."
    return f"{name} is not known here: {hint}"


def _wrong_type(wanted: str, given: str, kind: Any) -> str:
    wanted = wanted.removesuffix(" | null")
    needed, found = _NOUNS.get(wanted, wanted), _NOUNS.get(given, given)
    if given == "null":
        return f"{needed} is needed, and there is nothing: fill it in, or remove the line."
    can_be = wanted != "str" or given in ("int", "float", "bool")
    how = _HOW.get(wanted) if can_be else None
    choices = [choice for choice in _choices(kind) if isinstance(choice, str)]
    example = f", such as '{choices[-1]}'" if wanted == "str" and choices else ""
    return f"{needed} is needed, and this is {found}" + (f": {how}{example}." if how else f"{example}.")


def _either(choices: list[object]) -> str:
    *rest, last = map(str, choices) if choices else ("another",)
    return f"{', '.join(rest)} or {last}" if rest else last


def _type_at(kind: Any, path: str) -> Any:
    """The type that stands at a path."""
    for step in _STEP.findall(path):
        if step.startswith("["):
            kind = next(_elements(kind), None)
        else:
            kind = next((field.type for field in _fields(kind) if field.encode_name == step), None)
    return kind


def _elements(kind: Any) -> Iterator[Any]:
    """What the lists and maps of a type hold."""
    for each in _members(kind):
        if get_origin(each) in (tuple, dict, list):
            yield get_args(each)[1 if get_origin(each) is dict else 0]


def _fields(kind: Any) -> tuple[Any, ...]:
    """The fields of the struct in a type; none without one."""
    found = (each for each in _members(kind) if isinstance(each, type) and issubclass(each, msgspec.Struct))
    struct = next(found, None)
    return msgspec.structs.fields(struct) if struct else ()


def _choices(kind: Any) -> list[object]:
    return [choice for each in _members(kind) if get_origin(each) is Literal for choice in get_args(each)]


def _described(kind: Any) -> str | None:
    """What the type says of its form to people."""
    if isinstance(kind, TypeAliasType):
        return _described(kind.__value__)
    if get_origin(kind) is Annotated:
        said = (each.description for each in kind.__metadata__ if isinstance(each, msgspec.Meta))
        return next(filter(None, said), None)
    return next(filter(None, map(_described, get_args(kind))), None) if get_origin(kind) is not Literal else None


def _members(kind: Any) -> Iterator[Any]:
    """A type without annotations, or each part of a union."""
    if isinstance(kind, TypeAliasType):
        yield from _members(kind.__value__)
    elif get_origin(kind) is Annotated:
        yield from _members(kind.__origin__)
    elif get_origin(kind) in (None, Literal, tuple, dict, list):
        yield kind
    else:
        for each in get_args(kind):
            yield from _members(each)
