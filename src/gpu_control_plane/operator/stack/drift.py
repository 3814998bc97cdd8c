"""Whether an object in the cluster is as it should be: nothing missing, nothing changed, and nothing added. Pure.

What Kubernetes fills in by itself is no drift. The list of that need not be complete: a value that is not on it costs
one write, whose answer shows that it cannot be otherwise, and `apply` remembers that.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from gpu_control_plane.operator.stack.defaults import filled_in
from gpu_control_plane.operator.stack.live import Live
from gpu_control_plane.operator.stack.manifest import Manifest

_FALSE_IS_ABSENT: Final = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "readOnly", "stdin", "stdinOnce", "tty", "publishNotReadyAddresses"}
)
"""Switches that the API server leaves out when they are off. Of others, off and absent are not the same."""
_QUANTITIES: Final = frozenset({"limits", "requests"})
_QUANTITY: Final = frozenset({"sizeLimit", "divisor"})
_SUFFIXES: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}


def content_drifts(desired: Manifest, live: Live) -> bool:
    """Whether the content of an object is another than it should be.

    One that says nothing of its content leaves it to others: OpenShift itself puts a proxy's certificates into such a
    ConfigMap.
    """
    if not any(name in desired for name in live.content):
        return False
    there = live.body()
    wanted = filled_in(desired, there)
    return not all(_alike(name, wanted.get(name), there.get(name)) for name in live.content)


def with_its_selector(desired: Manifest, live: Live) -> Manifest:
    """The object with the selector that it has in the cluster, if its pods are found by that as well: the selector of a
    DaemonSet cannot change, and another DaemonSet in its place would leave running pods behind."""
    if desired["kind"] != "DaemonSet":
        return desired
    spec, held = desired["spec"], live.body().get("spec", {}).get("selector", {})
    if not held or held.get("matchExpressions"):
        return desired
    if not _within(held.get("matchLabels", {}), spec["template"]["metadata"].get("labels", {})):
        return desired
    return {**desired, "spec": {**spec, "selector": held}}


def metadata_drifts(desired: Manifest, live: Live) -> bool:
    """Whether a label, an annotation or the owner is missing; those that others added are theirs."""
    wanted, held = desired["metadata"], live.metadata
    if not _within(wanted.get("labels", {}), held.labels) or not _within(
        wanted.get("annotations", {}), held.annotations
    ):
        return True
    owners = {owner.uid for owner in held.owner_references if owner.controller}
    return any(owner["uid"] not in owners for owner in wanted.get("ownerReferences", ()))


def _within(wanted: Mapping[str, str], held: Mapping[str, str]) -> bool:
    return all(held.get(key) == value for key, value in wanted.items())


def _alike(name: str, desired: Any, live: Any) -> bool:
    if live is None or desired is None:
        return _nothing(name, desired) and _nothing(name, live)
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        if name in _QUANTITIES:
            return desired.keys() == live.keys() and all(_amount(desired[key]) == _amount(live[key]) for key in desired)
        return all(_alike(key, desired.get(key), live.get(key)) for key in {*desired, *live})
    if isinstance(desired, list) and isinstance(live, list):
        return len(desired) == len(live) and all(_alike("", *pair) for pair in zip(desired, live, strict=True))
    if name in _QUANTITY:
        return _amount(desired) == _amount(live)
    return isinstance(desired, bool) is isinstance(live, bool) and bool(desired == live)


def _nothing(name: str, value: object) -> bool:
    """Whether a value is as good as none."""
    if value is False:
        return name in _FALSE_IS_ABSENT
    return value is None or value in ({}, [], "")


def _amount(quantity: int | str) -> Decimal | str:
    """A quantity as a number: the API server writes `0.5` as `500m`."""
    text = str(quantity)
    number = text.rstrip("numkKMGTPEi")
    try:
        return Decimal(number) * _SUFFIXES[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return text
