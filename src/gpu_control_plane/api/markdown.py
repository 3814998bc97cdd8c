"""Schemas as Markdown: the tables that both reference pages consist of."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.fields import OpenEnum

_INT32_MAX: Final = 2**31 - 1
_PARTS_OF_PODS: Final = {
    frozenset({"metadata", "spec"}): "pod template",
    frozenset({"apiVersion", "kind", "metadata", "spec"}): "Service",
    frozenset({"limits", "requests", "claims"}): "resource requirements",
    frozenset({"name", "value", "valueFrom"}): "environment variable",
    frozenset({"name", "mountPath"}): "volume mount",
}
_EMPTY: Final = '""'


def table(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' -- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def vocabularies(chapters: Iterable[tuple[str, type[OpenEnum]]]) -> Iterator[str]:
    """A table of names and meanings for each enum."""
    for title, vocabulary in chapters:
        yield f"### {title}\n"
        yield from table(("Name", "Meaning"), ((code(one.value), text(one.meaning)) for one in vocabulary))


def columns(definition: Definition) -> Iterator[str]:
    """What `kubectl get` shows."""
    yield from table(
        ("Column", "From", "Shown"),
        ((one.name, code(one.path), "with `-o wide`" if one.priority else "always") for one in definition.columns),
    )


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    """A row for each field: where, type, default, meaning."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        mark = " \\*" if name in required else ""
        yield f"`{here}`{mark}", field_type(field), default(field), text(field.get("description", ""))
        inner, place = (field["items"], f"{here}[]") if "items" in field else (field, here)
        if well_known(inner) is None:
            yield from fields(inner, place)


def field_type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(code(value) for value in field["enum"])
    match field.get("type"):
        case "array":
            return f"list of {field_type(field['items'])}{_at_most(field.get('maxItems'))}"
        case "object" if "additionalProperties" in field:
            return f"map of {field_type(field['additionalProperties'])}{_at_most(field.get('maxProperties'))}"
        case "integer":
            return f"integer{_range(field)}"
        case "string" if field.get("format") == "date-time":
            return "time"
        case kind:
            return well_known(field) or str(kind)


def default(field: dict[str, Any]) -> str:
    match field.get("default"):
        case None | dict():
            return ""
        case bool() as value:
            return code(str(value).lower())
        case value:
            return code(str(value))


def rules(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Each message once, with the places where it may appear."""
    places: dict[str, list[str]] = {}
    for path, message in _every_rule(schema, ""):
        places.setdefault(message, []).append(f"`{path}`" if path else "the object")
    return [(text(message), ", ".join(paths)) for message, paths in places.items()]


def text(words: str) -> str:
    return words.replace("<", "&lt;").replace("|", "\\|")


def code(*values: str) -> str:
    return ", ".join(f"`{value or _EMPTY}`" for value in values)


def well_known(field: dict[str, Any]) -> str | None:
    """The name of a shape that Kubernetes has everywhere and people know."""
    if "x-kubernetes-int-or-string" in field:
        return "integer or string"
    properties = field.get("properties", {})
    if "x-kubernetes-preserve-unknown-fields" in field:
        return _PARTS_OF_PODS.get(frozenset(properties))
    if "lastTransitionTime" in properties:
        return "condition"
    return "label selector" if "matchExpressions" in properties else None


def _at_most(count: int | None) -> str:
    return "" if count is None else f", at most {count}"


def _range(field: dict[str, Any]) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is None:
        return ""
    return f" from {least}" if most in {None, _INT32_MAX} else f" {least}…{most}"


def _every_rule(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    yield from ((path, rule["message"]) for rule in schema.get("x-kubernetes-validations", ()))
    for name, field in schema.get("properties", {}).items():
        yield from _every_rule(field, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from _every_rule(schema["items"], f"{path}[]")
