"""Whether an object in the cluster differs from its manifest: a field is missing, changed or added. Pure.

What the API server fills in is no drift. The list of its defaults need not be complete: one that is missing costs one
write, whose answer still has the value; `apply` remembers that answer and does not write again.
docs/adr/0011-drift-by-known-defaults.md has the alternatives, measured.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from gpu_control_plane.kube.quantities import parse_quantity
from gpu_control_plane.operator.stack.defaults import with_api_defaults
from gpu_control_plane.operator.stack.live import Live
from gpu_control_plane.operator.stack.manifest import Manifest

_FALSE_IS_ABSENT: Final = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "readOnly", "stdin", "stdinOnce", "tty", "publishNotReadyAddresses"}
)
"""Booleans that the API server omits when they are false. For others, false and absent are not the same."""
_QUANTITIES: Final = frozenset({"limits", "requests"})
_QUANTITY: Final = frozenset({"sizeLimit", "divisor"})


class ComparedObjects:
    """Objects that did not differ from their manifests when they were last compared: until the manifest or the object
    changes, they need not be compared again."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[Manifest, tuple[Any, ...]]] = {}

    def unchanged(self, desired: Manifest, live: Live) -> bool:
        """Whether neither the manifest nor the object has changed since `remember`."""
        held = self._held.get(_id(desired))
        return held is not None and held[1] == _version(live) and held[0] == desired

    def remember(self, desired: Manifest, live: Live) -> None:
        """The object does not differ from its manifest."""
        self._held[_id(desired)] = desired, _version(live)


def content_drifts(desired: Manifest, live: Live) -> bool:
    """Whether the content of an object differs from its manifest.

    Where the manifest has no content, other writers fill it: OpenShift puts a proxy's certificates into such a
    ConfigMap.
    """
    if not any(name in desired for name in live.content):
        return False
    there = live.body()
    wanted = with_api_defaults(desired, there)
    return not all(_equal(name, wanted.get(name), there.get(name)) for name in live.content)


def with_live_selector(desired: Manifest, live: Live) -> Manifest:
    """The manifest with the selector that the DaemonSet has in the cluster, if that selects its pods as well: the
    selector of a DaemonSet cannot be changed, and a new DaemonSet would not own the running pods."""
    if desired["kind"] != "DaemonSet":
        return desired
    spec, held = desired["spec"], live.body().get("spec", {}).get("selector", {})
    if not held or held.get("matchExpressions"):
        return desired
    if not _within(held.get("matchLabels", {}), spec["template"]["metadata"].get("labels", {})):
        return desired
    return {**desired, "spec": {**spec, "selector": held}}


def metadata_drifts(desired: Manifest, live: Live) -> bool:
    """Whether a label, an annotation or the owner is missing; what other writers added does not count."""
    wanted, held = desired["metadata"], live.metadata
    if not _within(wanted.get("labels", {}), held.labels) or not _within(
        wanted.get("annotations", {}), held.annotations
    ):
        return True
    owners = {owner.uid for owner in held.owner_references if owner.controller}
    return any(owner["uid"] not in owners for owner in wanted.get("ownerReferences", ()))


def _id(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _version(live: Live) -> tuple[Any, ...]:
    """What changes whenever the content or the metadata of an object does. The generation stays when the status of a
    DaemonSet changes; kinds without a generation have no such status."""
    meta = live.metadata
    return meta.uid, meta.generation or meta.resource_version, meta.labels, meta.annotations, meta.owner_references


def _within(wanted: Mapping[str, str], held: Mapping[str, str]) -> bool:
    return all(held.get(key) == value for key, value in wanted.items())


def _equal(name: str, desired: Any, live: Any) -> bool:
    if live is None or desired is None:
        return _is_absent(name, desired) and _is_absent(name, live)
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        if name in _QUANTITIES:
            return desired.keys() == live.keys() and all(_amount(desired[key]) == _amount(live[key]) for key in desired)
        return all(_equal(key, desired.get(key), live.get(key)) for key in {*desired, *live})
    if isinstance(desired, list) and isinstance(live, list):
        return len(desired) == len(live) and all(_equal("", *pair) for pair in zip(desired, live, strict=True))
    if name in _QUANTITY:
        return _amount(desired) == _amount(live)
    return isinstance(desired, bool) is isinstance(live, bool) and bool(desired == live)


def _is_absent(name: str, value: object) -> bool:
    """Whether a value means the same as no value."""
    if value is False:
        return name in _FALSE_IS_ABSENT
    return value is None or value in ({}, [], "")


def _amount(quantity: int | str) -> Decimal | str:
    """A quantity as a number: the API server writes `0.5` as `500m`."""
    text = str(quantity)
    try:
        return parse_quantity(text)
    except ValueError:
        return text
