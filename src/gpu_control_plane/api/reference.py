"""The reference page of the API, rendered from the same definitions as the CRDs."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpu_control_plane.api import examples, names
from gpu_control_plane.api.markdown import code, columns, fields, rules, table, text, vocabularies
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.manifest_yaml import to_yaml
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
        (
            "Cards on which pods take turns, on nodes that other pods stay away from",
            examples.written(examples.pool("shared", examples.time_slices())),
        ),
    ),
    "GPUApproval": (("A card that is to join a pool when its machine does", examples.approval()),),
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
        f"Group `{names.GROUP}`, version `{names.VERSION}`. All kinds are cluster-scoped; `kubectl get gpus` shows all "
        "of them, `kubectl get gpu` the cards, `kubectl explain <kind> --recursive` what follows here. "
        "A field marked \\* is required. "
        "The kinds of [NVIDIA's operator](api-nvidia.md) and of [Ray](api-ray.md) have pages of their own.\n"
    )
    yield from table(
        ("Kind", "Short names", "What it is"),
        (
            (
                f"[{one.resource.kind}](#{one.resource.kind.lower()})",
                code(*one.short_names),
                text(first_paragraph(one.kind)),
            )
            for one in definitions
        ),
    )


def _kinds(definitions: Sequence[Definition]) -> Iterator[str]:
    for definition in definitions:
        schema = definition.schema()
        yield f"## {definition.resource.kind}\n"
        yield f"{text(first_paragraph(definition.kind))}\n"
        for title, thing in _EXAMPLES[definition.resource.kind]:
            yield f"{title}:\n\n```yaml\n{to_yaml(examples.manifest(thing))}```\n"
        for part in ("spec", "status"):
            yield f"### {definition.resource.kind} {part}\n"
            yield from table(("Field", "Type", "Default", "Meaning"), fields(schema["properties"][part], part))
        if broken := rules(schema):
            yield f"### {definition.resource.kind} rules\n"
            yield "Objects that break one of these are refused.\n"
            yield from table(("What the API server says", "Where"), broken)
        yield f"### {definition.resource.kind} columns and selectors\n"
        yield from columns(definition)
        yield f"`--field-selector` takes {code('metadata.name', *(path[1:] for path in definition.selectable))}.\n"


def _names() -> Iterator[str]:
    yield "## Names\n"
    yield from vocabularies(_VOCABULARY)
