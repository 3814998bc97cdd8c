"""Takes secrets out of what leaves a cluster. Pure.

Objects lose what nobody needs who helps: values of environment variables, annotations of others, who wrote which field.
In every text that is left, whatever looks like a credential is replaced. What is dropped wholesale cannot leak; the
patterns are for logs and messages, where only patterns can help.
"""

import re
from typing import Any, Final

REMOVED: Final = "[removed]"

_KEPT_ANNOTATIONS: Final = (
    "gpu.deckhouse.io/",
    "nvidia.com/",
    "nfd.node.kubernetes.io/",
    "meta.helm.sh/",
    "helm.sh/",
    "deployment.kubernetes.io/",
    "deprecated.daemonset.template.generation",
    "controller-gen.kubebuilder.io/",
)
"""Beginnings of annotations that may stay: others hold whatever their programs like, applied manifests among it."""
_DROPPED_FIELDS: Final = frozenset({"managedFields", "stringData", "binaryData", "imagePullSecrets"})
_VALUES: Final = frozenset({"env"})
_CREDENTIAL: Final = r"(?:pass(?:word|wd)?|secret|token|(?:api|access|private)[_-]?key|credential)s?"
_PATTERNS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"),
    re.compile(r"(?<=\b[Bb]earer )[^\s\"']+"),
    re.compile(r"(?<=\b[Bb]asic )[A-Za-z0-9+/=]{8,}"),
    re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abpr]-|nvapi-|hf_|sk-)[\w-]{10,}"),
)
_ASSIGNED: Final = re.compile(rf"(?i)(\b[\w.-]*{_CREDENTIAL}[\w.-]*[\"']?\s*[=:]\s*[\"']?)([^\s\"',;&}}]+)")


def scrub_text(text: str) -> str:
    """The text without what looks like a credential."""
    for pattern in _PATTERNS:
        text = pattern.sub(REMOVED, text)
    return _ASSIGNED.sub(lambda found: found[1] + REMOVED, text)


def scrub_object(item: Any) -> Any:
    """An object of the API, or a part of one, without secrets."""
    if isinstance(item, str):
        return scrub_text(item)
    if isinstance(item, list | tuple):
        return [scrub_object(each) for each in item]
    if not isinstance(item, dict):
        return item
    return {key: _scrub_field(key, value) for key, value in item.items() if key not in _DROPPED_FIELDS}


def _scrub_field(key: str, value: Any) -> Any:
    if key in _VALUES and isinstance(value, list):
        return [_without_value(each) for each in value]
    if key == "annotations" and isinstance(value, dict):
        kept = {name: text for name, text in value.items() if name.startswith(_KEPT_ANNOTATIONS)}
        return scrub_object(kept)
    return scrub_object(value)


def _without_value(variable: Any) -> Any:
    """An environment variable by its name: that it is set, and from where, and not to what."""
    if not isinstance(variable, dict):
        return REMOVED
    return {key: REMOVED if key == "value" else scrub_object(held) for key, held in variable.items()}
