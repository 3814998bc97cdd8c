"""The reference page of the API, rendered from the same definitions as the CRDs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from gpu_control_plane.api import examples, names
from gpu_control_plane.kube.crd import Definition, to_yaml
from gpu_control_plane.kube.objects import Object
from gpu_control_plane.kube.schema import first_paragraph

_EXAMPLES: Final[dict[str, tuple[tuple[str, Object], ...]]] = {
    "GPUDevice": (("A card in use, as `kubectl get -o yaml` shows it", examples.device(cards=2, index=1)),),
    "GPUNodeState": (("A machine with two cards, in order", examples.node_state(cards=2)),),
    "GPUPool": (
        ("Whole cards for two teams", examples.written(examples.pool())),
        (
            "Cards cut into instances of two sizes",
            examples.written(examples.pool("notebooks", examples.mixed_layout())),
        ),
    ),
}
_VOCABULARY: Final = (
    ("Annotations", names.Annotation),
    ("Labels", names.Label),
    ("Conditions of a GPUDevice", names.DeviceCondition),
    ("Conditions of a GPUNodeState", names.NodeCondition),
    ("Conditions of a GPUPool", names.PoolCondition),
    ("Reasons in conditions", names.Reason),
    ("Reasons of Events", names.EventReason),
)


def reference(definitions: Sequence[Definition], header: str) -> str:
    """The whole page as Markdown."""
    return "\n".join([*_opening(definitions, header), *_kinds(definitions), *_names()]).rstrip() + "\n"


def _opening(definitions: Sequence[Definition], header: str) -> Iterator[str]:
    yield f"<!-- {header} -->\n"
    yield "# API reference\n"
    yield (
        f"Group `{names.GROUP}`, version `{names.VERSION}`. All kinds are cluster-scoped; `kubectl get gpu` shows all "
        "of them, `kubectl explain <kind> --recursive` what follows here. A field marked \\* is required.\n"
    )
    yield from _table(
        ("Kind", "Short names", "What it is"),
        (
            (
                f"[{one.resource.kind}](#{one.resource.kind.lower()})",
                _code(*one.short_names),
                _text(first_paragraph(one.kind)),
            )
            for one in definitions
        ),
    )


def _kinds(definitions: Sequence[Definition]) -> Iterator[str]:
    for definition in definitions:
        schema = definition.schema()
        yield f"## {definition.resource.kind}\n"
        yield f"{_text(first_paragraph(definition.kind))}\n"
        for title, thing in _EXAMPLES[definition.resource.kind]:
            yield f"{title}:\n\n```yaml\n{to_yaml(examples.manifest(thing))}```\n"
        for part in ("spec", "status"):
            yield f"### {definition.resource.kind} {part}\n"
            yield from _table(("Field", "Type", "Default", "Meaning"), _fields(schema["properties"][part], part))
        if rules := _rules(schema):
            yield f"### {definition.resource.kind} rules\n"
            yield "Objects that break one of these are refused.\n"
            yield from _table(("What the API server says", "Where"), rules)
        yield f"### {definition.resource.kind} columns and selectors\n"
        yield from _table(
            ("Column", "From", "Shown"),
            ((one.name, _code(one.path), "with `-o wide`" if one.priority else "always") for one in definition.columns),
        )
        yield f"`--field-selector` takes {_code('metadata.name', *(path[1:] for path in definition.selectable))}.\n"


def _names() -> Iterator[str]:
    yield "## Names\n"
    for title, vocabulary in _VOCABULARY:
        yield f"### {title}\n"
        yield from _table(("Name", "Meaning"), ((_code(member.value), _text(member.meaning)) for member in vocabulary))


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        mark = " \\*" if name in required else ""
        yield f"`{here}`{mark}", _type(field), _default(field), _text(field.get("description", ""))
        inner, place = (field["items"], f"{here}[]") if "items" in field else (field, here)
        if _well_known(inner) is None:
            yield from _fields(inner, place)


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(_code(value) for value in field["enum"])
    match field.get("type"):
        case "array":
            return f"list of {_type(field['items'])}, at most {field['maxItems']}"
        case "object" if "additionalProperties" in field:
            return f"map of {_type(field['additionalProperties'])}, at most {field['maxProperties']}"
        case "integer":
            return f"integer{_range(field)}"
        case "string" if field.get("format") == "date-time":
            return "time"
        case kind:
            return _well_known(field) or str(kind)


def _well_known(field: dict[str, Any]) -> str | None:
    """The name of a shape that Kubernetes has everywhere and people know."""
    properties = field.get("properties", {})
    if "lastTransitionTime" in properties:
        return "condition"
    return "label selector" if "matchExpressions" in properties else None


def _range(field: dict[str, Any]) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is None:
        return ""
    return f" from {least}" if most is None else f" {least}…{most}"


def _default(field: dict[str, Any]) -> str:
    match field.get("default"):
        case None | dict():
            return ""
        case bool() as value:
            return _code(str(value).lower())
        case value:
            return _code(str(value))


def _rules(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Each message once, with the places where it may appear."""
    places: dict[str, list[str]] = {}
    for path, message in _every_rule(schema, ""):
        places.setdefault(message, []).append(f"`{path}`" if path else "the object")
    return [(_text(message), ", ".join(paths)) for message, paths in places.items()]


def _every_rule(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    yield from ((path, rule["message"]) for rule in schema.get("x-kubernetes-validations", ()))
    for name, field in schema.get("properties", {}).items():
        yield from _every_rule(field, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from _every_rule(schema["items"], f"{path}[]")


def _table(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' -- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _text(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


def _code(*values: str) -> str:
    return ", ".join(f"`{value}`" for value in values)
