"""ConfigMaps that people made and a policy names. Pure.

One that nobody has made, or that lacks a file which is read from it, is an error: pods would wait for it without a
word, or an operand would run that does not do as it was told. What runs already goes on, and what was asked for comes
as soon as the ConfigMap does.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSet
from gpu_control_plane.operator.stack.render_input import CannotRender, Platform, Stage

CONFIG_DIGEST: Final = f"{GROUP}/config-digest"


def named(platform: Platform, name: str, *keys: str, field: str) -> Mapping[str, str]:
    """The content of the ConfigMap that a field of the spec names; `keys` have to be in it."""
    held = platform.config_maps.get(name)
    which = f"the ConfigMap {name}, which {field} names,"
    if held is None:
        raise CannotRender(f"{which} is not in namespace {platform.namespace}: create it")
    if missing := [key for key in keys if key not in held]:
        raise CannotRender(f"{which} has no key {' and no key '.join(missing)}: add it")
    return held


def follow_config(daemonset: DaemonSet, stage: Stage, *names: str) -> None:
    """Let the pods be new ones whenever a ConfigMap of theirs is edited: most operands read it only when they start."""
    annotations = daemonset.template["metadata"].setdefault("annotations", {})
    annotations[CONFIG_DIGEST] = config_digest(stage.platform, *names)


def config_digest(platform: Platform, *names: str) -> str:
    """A digest over the content of ConfigMaps."""
    found = {name: dict(platform.config_maps[name]) for name in names if name in platform.config_maps}
    return hashlib.sha256(msgspec.json.encode(found, order="deterministic")).hexdigest()[:16]
