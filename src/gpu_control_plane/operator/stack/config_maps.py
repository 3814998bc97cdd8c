"""ConfigMaps and Secrets that people made and a policy names. Pure.

One that does not exist, or lacks a key that is read, is an error: pods would wait for it without any message, or an
operand would run with other settings than the policy asks. What runs already stays, and the change is carried out as
soon as it is there.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.render_input import Platform, RenderError, RenderInput

CONFIG_DIGEST: Final = f"{GROUP}/config-digest"


def config_map_data(platform: Platform, name: str, *keys: str, field: str) -> Mapping[str, str]:
    """The content of the ConfigMap that a field of the spec names; `keys` have to be in it."""
    held = platform.config_maps.get(name)
    which = f"the ConfigMap {name}, which {field} names,"
    if held is None:
        raise RenderError(f"{which} is not in namespace {platform.namespace}: create it")
    if missing := [key for key in keys if key not in held]:
        raise RenderError(f"{which} has no key {' and no key '.join(missing)}: add it")
    return held


def require_secret(platform: Platform, name: str, *, field: str) -> None:
    """Refuse the name of a Secret that does not exist: an old driver would be replaced by one that never starts."""
    if name in platform.missing_secrets:
        where = f"which {field} names, is not in namespace {platform.namespace}"
        raise RenderError(f"the Secret {name}, {where}: create it; until then no driver is replaced")


def add_config_digest(daemonset: DaemonSetManifest, render_input: RenderInput, *names: str) -> None:
    """Replace the pods whenever one of their ConfigMaps is edited: most operands read them only when they start."""
    annotations = daemonset.template["metadata"].setdefault("annotations", {})
    annotations[CONFIG_DIGEST] = config_digest(render_input.platform, *names)


def config_digest(platform: Platform, *names: str) -> str:
    """A digest over the content of ConfigMaps."""
    found = {name: dict(platform.config_maps[name]) for name in names if name in platform.config_maps}
    return hashlib.sha256(msgspec.json.encode(found, order="deterministic")).hexdigest()[:16]
