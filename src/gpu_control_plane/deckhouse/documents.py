"""YAML documents for people: scripts as they are, strings that look like numbers in quotes, secrets as comments."""

from collections.abc import Iterable
from typing import Any

import yaml

from gpu_control_plane.deckhouse.kinds import Document


def write_documents(documents: Iterable[Document], header: str) -> str:
    """A file without secrets: documents that hold one are shown as comments, to be read and not to be applied.

    Comments stand above the document that follows them, never alone between two `---`: dhctl splits files there, and a
    part without a kind is an error to it.
    """
    parts: list[str] = []
    comments = _comment(header)
    for document in documents:
        text = to_yaml(document.to_builtins())
        if document.is_secret:
            comments += (
                "\n" if comments else ""
            ) + f"# {document.title} is in secrets.yml, since it holds a secret:\n#\n{_comment(text)}"
        else:
            parts.append(f"{comments}\n{text}" if comments else text)
            comments = ""
    return "---\n".join(parts) + comments


def write_secrets(documents: Iterable[Document], header: str) -> str:
    """The file with the documents that the others leave out."""
    return f"{_comment(header)}\n" + "---\n".join(to_yaml(each.to_builtins()) for each in documents)


def to_yaml(content: dict[str, Any]) -> str:
    return yaml.dump(
        content, Dumper=_ReadableDumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False
    )


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


class _ReadableDumper(yaml.SafeDumper):
    """Texts of several lines as blocks; nothing as a reference to something further up."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the answer is the same for all
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_ReadableDumper.add_representer(str, _ReadableDumper.represent_str)
