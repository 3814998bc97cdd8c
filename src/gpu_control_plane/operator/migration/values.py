"""Translates values of NVIDIA's Helm chart to values of ours. Pure; every value that is not translated is reported.

A file holds the values that were changed, or all (`helm get values -a`). A value that it does not contain has the
default of NVIDIA's chart, so that the result is the same stack.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gpu_control_plane.api.nvidia import ClusterPolicySpec, NVIDIADriverSpec, ineffective_fields, unknown_fields
from gpu_control_plane.api.nvidia.fields import ImageParts
from gpu_control_plane.migration.key_mapping import KeyMapping, KeyNote, MappingRow
from gpu_control_plane.operator.migration.chart_defaults import CHART, DEFAULTS
from gpu_control_plane.operator.migration.fields import as_text
from gpu_control_plane.operator.migration.mapping import PREFIXES, RENAMED_FOR_DRIVER, row_for
from gpu_control_plane.operator.stack.images import image_of

type Tree = dict[str, Any]

_MEANT_EMPTY: Final = frozenset({("migManager", "config", "default")})
"""Keys for which an empty value is not the same as no value."""
_NOT_WRITTEN_WHEN_OFF: Final = frozenset({("operator", "use_ocp_driver_toolkit")})
"""Keys that NVIDIA's chart omits when they are false, and whose absence means something else."""
_WITH_CHART: Final = ("validator", "nodeStatusExporter")
"""Operands whose default version is that of the chart."""
_NAMED_BY_CHART: Final = {"DRIVER_MANAGER_IMAGE": ("driver", "manager"), "VALIDATOR_IMAGE": ("validator",)}
"""Variables that NVIDIA's chart sets, and the values they come from."""
_PARTS: Final = ("repository", "image", "version")
_LEVELS: Final = {"info": "info", "warn": "warning"} | dict.fromkeys(("error", "dpanic", "panic", "fatal"), "error")
_SHARED_BY_DRIVER: Final = ("labels", "annotations", "tolerations")
"""What NVIDIA's chart takes from `daemonsets` for the default NVIDIADriver."""


class BadValues(ValueError):
    """The file does not have the structure of NVIDIA's values; the message says where."""


class Variable(msgspec.Struct, frozen=True):
    """A variable in the environment of NVIDIA's operator."""

    name: str
    value: object


class Translation(msgspec.Struct, frozen=True):
    """Values for our chart, and notes about values that are not in it."""

    values: Tree
    notes: tuple[KeyNote, ...] = ()

    @property
    def unknown(self) -> tuple[KeyNote, ...]:
        return tuple(note for note in self.notes if note.mapping is KeyMapping.UNKNOWN)


def translate(given: Mapping[str, Any]) -> Translation:
    """The same stack, as values for our chart. Our agent is disabled on all nodes: where it runs, it replaces NVIDIA's
    device plugin and MIG manager, and a person decides about that for each node. What other programs of the
    ClusterPolicy do there it leaves to them, also as long as NVIDIA's release has the ClusterPolicy."""
    merged = _merged(DEFAULTS, given)
    for section in _WITH_CHART:
        if section in merged:
            merged[section]["version"] = merged[section].get("version") or CHART
    made: Tree = {"operator": {"enabled": True}, "managedNodes": {"enabledByDefault": False}}
    notes: list[KeyNote] = []
    for path, value, row in _placed(merged, ()):
        if row is None:
            notes.append(KeyNote(".".join(path), KeyMapping.UNKNOWN, "Neither chart has such a value.", value))
        elif row.mapping is KeyMapping.WITHOUT_EFFECT:
            if _set_by_person(path, value) or (row.always and value):
                notes.append(KeyNote(".".join(path), row.mapping, row.why, value))
        elif not (row.omit_default and value == _at(DEFAULTS, path)):
            _put(made, (*row.to.split("."), *path[len(row.path) :]), value)
    notes += _operator_notes(made, merged)
    notes += _object_notes(made, merged)
    if made["clusterPolicy"].get("create", True):
        made["agent"] = _beside_policy(made["clusterPolicy"]["spec"])
    return Translation(made, tuple(sorted(notes, key=lambda note: (note.mapping, note.key))))


def _beside_policy(spec: Tree) -> Tree:
    """What the agent leaves to programs of this ClusterPolicy on a node where both are. Its validator is always on."""
    made: Tree = {"validator": {"enabled": False}}
    if spec.get("gfd", {}).get("enabled", True):
        made["labels"] = False
    if spec.get("dcgmExporter", {}).get("enabled", True):
        made["exporter"] = {"enabled": False}
    return made


def _placed(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, MappingRow | None]]:
    """Each key at the depth of the rows, with the row that decides about it."""
    for name, value in tree.items():
        here = (*path, name)
        if here in PREFIXES and isinstance(value, Mapping):
            yield from _placed(value, here)
        elif not _empty(here, kept := _pruned(value, here)):
            yield here, kept, row_for(here)


def _operator_notes(made: Tree, merged: Tree) -> list[KeyNote]:
    """Settings of our own processes: variables that name an image, and a log level that we know."""
    variables = _variables(made["operator"].pop("images", []))
    images = {one.name: one.value for one in variables if one.name.endswith("_IMAGE") and one.value}
    for name, path in _NAMED_BY_CHART.items():
        if image := _image(_at(merged, path)):
            images.setdefault(name, image)
    if images:
        made["operator"]["images"] = images
    if "logLevel" in made:
        made["logLevel"] = _LEVELS.get(str(made["logLevel"]), "debug")
    return [
        KeyNote(f"operator.env.{one.name}", KeyMapping.WITHOUT_EFFECT, "It names no image.", one.value)
        for one in variables
        if one.name not in images
    ]


def _image(parts: object) -> str:
    """The full name of an image; empty if a part of it is missing."""
    if not isinstance(parts, Mapping) or not all(parts.get(name) for name in _PARTS):
        return ""
    repository, image, version = (str(parts[name]) for name in _PARTS)
    return image_of(ImageParts(repository=repository, image=image, version=version), what=image, environment={})


def _variables(given: object) -> list[Variable]:
    if not isinstance(given, list) or not all(isinstance(one, dict) and "name" in one for one in given):
        raise BadValues("operator.env: this should be a list of names and values.")
    return [Variable(str(one["name"]), one.get("value")) for one in given]


def _object_notes(made: Tree, merged: Tree) -> list[KeyNote]:
    """The specs of ClusterPolicy and NVIDIADriver: which of them has the driver, checked against their types."""
    policy, crd = made.setdefault("clusterPolicy", {}), made.pop("nvidiaDriver", {})
    spec, notes = _checked(policy.get("spec", {}), ClusterPolicySpec, "")
    driver = spec.get("driver", {})
    by_crd = bool(driver.get("useNvidiaDriverCRD")) and bool(driver.get("enabled", True))
    made["nvidiaDriver"] = {"create": by_crd and bool(crd.get("create", True))}
    if made["nvidiaDriver"]["create"]:
        wanted = _driver_spec(merged) | crd.get("spec", {}) | {"default": True}
        known = {field.encode_name for field in msgspec.structs.fields(NVIDIADriverSpec)}
        kept, more = _checked({name: wanted[name] for name in wanted if name in known}, NVIDIADriverSpec, "driver.")
        made["nvidiaDriver"] |= {"name": "default", "spec": kept}
        noted = {note.key for note in notes}
        notes += [note for note in more if note.key not in noted]
    if by_crd:
        spec["driver"] = {name: driver[name] for name in ("enabled", "useNvidiaDriverCRD") if name in driver}
    policy.pop("spec", None)
    if policy.get("create", True):
        policy |= {"name": "cluster-policy", "spec": spec}
    return notes


def _driver_spec(merged: Tree) -> Tree:
    """The spec of the default NVIDIADriver, which NVIDIA's chart renders from values of several sections."""
    driver = copy.deepcopy(merged.get("driver", {}))
    for (section, old), (place, new) in RENAMED_FOR_DRIVER.items():
        held = driver.get(section, {})
        value = held.pop(old, None) if isinstance(held, dict) else None
        if value not in (None, ""):
            driver.setdefault(place, {})[new] = value
    if not driver.get("licensingConfig", {}).keys() - {"nlsEnabled"}:
        driver.pop("licensingConfig", None)
    shared = {name: value for name, value in merged.get("daemonsets", {}).items() if name in _SHARED_BY_DRIVER}
    beside = {name: merged[name] for name in ("gds", "gdrcopy") if merged.get(name, {}).get("enabled")}
    return {
        name: _pruned(value, (name,))
        for name, value in (driver | shared | beside).items()
        if not _empty((name,), value)
    }


def _checked(spec: Tree, kind: type[msgspec.Struct], prefix: str) -> tuple[Tree, list[KeyNote]]:
    """The spec without unknown fields, and with text where its type has text."""
    spec = copy.deepcopy(spec)
    unknown = unknown_fields(spec, kind)
    notes = [
        KeyNote(
            f"{prefix}{path}",
            KeyMapping.UNKNOWN,
            f"{kind.__name__.removesuffix('Spec')} has no such field.",
            _remove(spec, path),
        )
        for path in unknown
    ]
    notes += [
        KeyNote(f"{prefix}{path}", KeyMapping.WITHOUT_EFFECT, "It is accepted, and changes nothing.")
        for path in ineffective_fields(spec, kind)
    ]
    fitting = as_text(spec, kind)
    assert isinstance(fitting, dict)  # noqa: S101 - a mapping stays one
    return fitting, notes


def _remove(spec: Tree, dotted: str) -> object:
    """Remove a field from the spec. One inside a list stays: the path does not say which item it is in."""
    *way, last = dotted.split(".")
    held: Any = spec
    for name in way:
        held = held.get(name) if isinstance(held, dict) else None
    return held.pop(last, None) if isinstance(held, dict) else None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], path: tuple[str, ...] = ()) -> Tree:
    """Merge as Helm does: maps are merged, everything else is replaced, null removes."""
    made: Tree = {}
    for name in [*below, *(name for name in above if name not in below)]:
        if name not in above:
            made[name] = copy.deepcopy(below[name])
        elif isinstance(above[name], Mapping):
            lower = below.get(name)
            made[name] = _merged(lower if isinstance(lower, Mapping) else {}, above[name], (*path, name))
        elif above[name] is not None:
            if isinstance(below.get(name), Mapping):
                raise BadValues(f"{'.'.join((*path, name))}: this should be a map, as in NVIDIA's chart.")
            made[name] = above[name]
    return made


def _pruned(value: object, path: tuple[str, ...]) -> object:
    """Without empty values, which NVIDIA's chart does not render either."""
    if not isinstance(value, Mapping):
        return value
    inner = {name: _pruned(held, (*path, name)) for name, held in value.items()}
    return {name: held for name, held in inner.items() if not _empty((*path, name), held)}


def _empty(path: tuple[str, ...], value: object) -> bool:
    if path in _MEANT_EMPTY:
        return value is None
    return value is None or value in ("", [], {}) or (value is False and path in _NOT_WRITTEN_WHEN_OFF)


def _set_by_person(path: tuple[str, ...], value: object) -> bool:
    """Whether a person has set the value: not if it is off, or the default of NVIDIA's chart."""
    return bool(value) and value != _at(DEFAULTS, path)


def _at(tree: Any, path: tuple[str, ...]) -> object:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _put(tree: Tree, path: tuple[str, ...], value: Any) -> None:
    *way, last = path
    for name in way:
        tree = tree.setdefault(name, {})
    tree[last] = value
