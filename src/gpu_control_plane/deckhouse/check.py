"""Whether documents are what Deckhouse accepts: the types of `kinds`, the rules of its webhooks and dhctl's preflight.

Works on any files, rendered or written by hand, so that a mistake is found on a laptop and not on a machine that is
half installed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.deckhouse.document_rules import rules_of
from gpu_control_plane.deckhouse.kinds import Document, configuration, nodes, pools, services
from gpu_control_plane.deckhouse.shape_faults import shape_fault
from gpu_control_plane.kube.written_yaml import BadYAML, read_yaml

KINDS: Final[dict[tuple[str, str], type[Document]]] = {
    (kind.api_version, kind.kind): kind
    for module in (configuration, nodes, pools, services)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Document) and kind is not Document
}
"""Every kind that is known, by what a document says of itself."""


class Checked(msgspec.Struct, frozen=True):
    """What became of some files."""

    documents: tuple[Document, ...]
    problems: tuple[str, ...]
    unknown: tuple[str, ...]
    """Kinds that are not known here, and so were not looked at."""


def check(documents: Sequence[Document]) -> list[str]:
    """Everything that is wrong with documents that were made here."""
    found: list[str] = []
    for document in documents:
        _, problem = parse(document.to_builtins())
        found += [problem] if problem else []
    return found or list(rules_of(documents))


def check_files(texts: Iterable[tuple[str, str | bytes]]) -> Checked:
    """Everything that is wrong with files, given as name and content."""
    documents: list[Document] = []
    found: list[str] = []
    unknown: list[str] = []
    for name, text in texts:
        for number, content in enumerate(_contents(name, text, found), 1):
            if "apiVersion" not in content or "kind" not in content:
                found.append(f"{name}, document {number}: apiVersion and kind are missing.")
                continue
            kind = (str(content["apiVersion"]), str(content["kind"]))
            if kind not in KINDS:
                unknown.append(f"{name}, document {number}: {kind[0]} {kind[1]}")
                continue
            document, problem = parse(content)
            found += [f"{name}: {problem}"] if problem else []
            documents += [document] if document else []
    if not documents and not unknown and not found:
        found.append("There is no document in these files.")
    return Checked(tuple(documents), tuple(found or rules_of(documents)), tuple(unknown))


def parse(content: dict[str, Any]) -> tuple[Document | None, str | None]:
    """A document of a known kind, or what is wrong with it."""
    kind = KINDS[content["apiVersion"], content["kind"]]
    rest = {key: value for key, value in content.items() if key not in ("apiVersion", "kind", "status")}
    try:
        return msgspec.convert(rest, kind), None
    except msgspec.ValidationError as error:
        fault = shape_fault(error, kind)
        metadata = content.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return None, f"{kind.kind} {name}".rstrip() + f"{': ' + fault.path if fault.path else ''}: {fault.why}"


def _contents(name: str, text: str | bytes, found: list[str]) -> Iterator[dict[str, Any]]:
    try:
        for content in read_yaml(text):
            if isinstance(content, dict):
                yield content
            elif content is not None:
                found.append(f"{name}: a document is no object with apiVersion and kind.")
    except BadYAML as error:
        found.append(f"{name}: {error}")
