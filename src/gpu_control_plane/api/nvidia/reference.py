"""The reference page of NVIDIA's kinds.

A ClusterPolicy has hundreds of fields, most of them the same few in every section. What occurs in several places is
described once, and the places point there.
"""

from collections.abc import Iterator
from typing import Final

from gpu_control_plane.api.markdown import code, columns, fields, rules, table, text, vocabularies
from gpu_control_plane.api.nvidia import clusterpolicy, names, nvidiadriver
from gpu_control_plane.api.nvidia.fields import Image, Operand
from gpu_control_plane.api.nvidia.status import StackStatus
from gpu_control_plane.api.shared_parts import FIELD_HEAD, SharedParts, Struct, fields_of, struct_in
from gpu_control_plane.kube.crd import Definition
from gpu_control_plane.kube.schema import first_paragraph, structural

_DEFINITIONS: Final = (clusterpolicy.DEFINITION, nvidiadriver.DEFINITION)
_SHARED: Final = SharedParts((clusterpolicy.ClusterPolicySpec, nvidiadriver.NVIDIADriverSpec), (Operand, Image))
_VOCABULARY: Final = (
    ("Labels of Nodes", names.NodeLabel),
    ("Annotations of Nodes", names.NodeAnnotation),
    ("Labels of Pods", names.PodLabel),
    ("Conditions", names.StackCondition),
    ("Reasons in conditions", names.StackReason),
    ("Steps of a driver upgrade", names.UpgradeState),
    ("Reasons of Events", names.StackEvent),
)


def nvidia_reference(header: str) -> str:
    """The whole page as Markdown."""
    chapters = (_opening(header), _policy(), _driver(), _shared_parts(), _status(), _names())
    return "\n".join(line for chapter in chapters for line in chapter).rstrip() + "\n"


def _opening(header: str) -> Iterator[str]:
    yield f"<!-- {header} -->\n"
    yield "# API reference: the kinds of NVIDIA's operator\n"
    yield (
        f"Group `{names.GROUP}`. Both kinds are cluster-scoped, and manifests written for NVIDIA's operator mean the "
        "same here. A field marked \\* is required. Fields that this release does not know are kept and have no "
        f"effect; the condition `{names.StackCondition.UNKNOWN_FIELDS}` names them. `kubectl explain` shows all of "
        "this, too. The kinds of the group `gpu.deckhouse.io` are in the [API reference](api.md).\n"
    )
    yield from table(
        ("Kind", "Version", "Short names", "What it is"),
        (
            (
                f"[{one.resource.kind}](#{one.resource.kind.lower()})",
                code(one.resource.api_version),
                code(*one.short_names),
                text(first_paragraph(one.kind)),
            )
            for one in _DEFINITIONS
        ),
    )


def _policy() -> Iterator[str]:
    spec = clusterpolicy.ClusterPolicySpec
    yield from _kind(clusterpolicy.DEFINITION)
    yield "### ClusterPolicy sections\n"
    yield from table(("Section", "Meaning"), _sections(spec))
    for field in fields_of(spec):
        section = struct_in(field.type)
        if section and section not in _SHARED:
            yield f"### spec.{field.encode_name}\n"
            yield from _SHARED.part(section)


def _driver() -> Iterator[str]:
    yield from _kind(nvidiadriver.DEFINITION)
    yield "### NVIDIADriver spec\n"
    yield from table(FIELD_HEAD, _SHARED.rows(nvidiadriver.NVIDIADriverSpec))


def _kind(definition: Definition) -> Iterator[str]:
    kind = definition.resource.kind
    yield f"## {kind}\n"
    yield f"{text(first_paragraph(definition.kind))}\n"
    yield from columns(definition)
    if broken := rules(definition.schema()):
        yield f"### {kind} rules\n"
        yield "Objects that break one of these are refused.\n"
        yield from table(("What the API server says", "Where"), broken)


def _shared_parts() -> Iterator[str]:
    yield "## Shared parts\n"
    yield from _SHARED.chapters()


def _status() -> Iterator[str]:
    yield "## Status\n"
    yield from table(FIELD_HEAD, fields(structural(StackStatus), "status"))


def _names() -> Iterator[str]:
    yield "## Names\n"
    yield from vocabularies(_VOCABULARY)


def _sections(spec: Struct) -> Iterator[tuple[str, str]]:
    schema = structural(spec)
    for field in fields_of(spec):
        name, section = field.encode_name, struct_in(field.type)
        anchor = section.__name__.lower() if section and section in _SHARED else f"spec{name.lower()}"
        mark = " \\*" if name in schema["required"] else ""
        yield f"[`{name}`](#{anchor}){mark}", text(schema["properties"][name]["description"])
