"""Where each value of the kuberay-operator chart goes: into the part `ray` of our chart, or nowhere, with the reason.

One table for every key that KubeRay's chart has, so that a misspelt one is refused here and not ignored there. It has
two uses: `kubectl gpu gitops render` refuses what goes nowhere, `kubectl gpu migrate ray values` names it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.api.shapes import wire_name
from gpu_control_plane.gitops.refusals import RefusedKey
from gpu_control_plane.migration.key_mapping import KeyMapping, KeyNote, MappingRow
from gpu_control_plane.ray.options import BatchScheduler
from gpu_control_plane.ray.options_from import DOMAIN, DURATIONS, SWITCHES

type Tree = dict[str, Any]

SCHEDULERS: Final = tuple(each.value for each in BatchScheduler if each is not BatchScheduler.NONE)
TIMINGS: Final[Mapping[str, str]] = {name: wire_name(field) for name, field in DURATIONS.items()}
"""Variables that are seconds, and the waiting time that each becomes."""
USELESS: Final[Mapping[str, str]] = {
    "ENABLE_WEBHOOKS": "`webhook.enabled` says whether there are webhooks; without them conditions say the same.",
    "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV": "Nothing is looked at by the clock: changes are watched.",
}
"""Variables that KubeRay reads, and that mean nothing here."""
SERVED_GATES: Final = frozenset(
    {
        *("RayClusterStatusConditions", "RayJobDeletionPolicy", "RayMultiHostIndexing", "RayCronJob"),
        *("RayServiceIncrementalUpgrade", "RayClusterNetworkPolicy", "GCSFaultToleranceEmbeddedStorage"),
        *("RayClusterMTLS", "RayClusterHistoryServer"),
    }
)
"""Parts of KubeRay behind a feature gate that are always there here."""
UNSERVED_GATES: Final = frozenset({"SidecarSubmitterRestart", "KubernetesWAS"})


def _to(key: str, to: str, why: str = "") -> MappingRow:
    return MappingRow(key, KeyMapping.MAPPED, to, why)


def _none(key: str, why: str) -> MappingRow:
    return MappingRow(key, KeyMapping.WITHOUT_EFFECT, why=why)


_POD: Final = "It is for KubeRay's own pod. Ours also has the other controllers: see `controller`."
_RESTRICTED: Final = "Our pods are always as restricted as Pod Security knows."
_NAMES: Final = "It only names parts of KubeRay's release."
_CONFIGURED: Final = tuple(
    f"configuration.{key}"
    for key in (
        *("defaultContainerEnvs", "defaultPodAnnotations", "defaultPodLabels"),
        *("headSidecarContainers", "workerSidecarContainers"),
    )
)

ROWS: Final = (
    _to("watchNamespace", "ray.watchNamespace", "With Roles there in place of a ClusterRole."),
    _to(
        "singleNamespaceInstall",
        "ray.singleNamespaceInstall",
        "It needs `watchNamespace`: users' Ray cannot be in the namespace of our own programs.",
    ),
    _to("batchScheduler.name", "ray.batchScheduler.name"),
    _to("batchScheduler.enabled", "ray.batchScheduler.name", "`true` is `volcano`."),
    _to("useKubernetesProxy", "ray.useKubernetesProxy"),
    _to("env", "ray.env", "Switches by their names; the two `RAYJOB_…_SECONDS` go to `controller.timings.ray`."),
    _to(
        "configuration.enabled", "ray.configuration", "Without it the rest of `configuration` has no effect, as there."
    ),
    *(_to(key, f"ray.{key}") for key in _CONFIGURED),
    _to("metrics.serviceMonitor.enabled", "monitoring.serviceMonitors.enabled"),
    _to("metrics.serviceMonitor.interval", "monitoring.serviceMonitors.interval"),
    _to("metrics.serviceMonitor.additionalLabels", "monitoring.serviceMonitors.labels"),
    _to("metrics.serviceMonitor.selector", "monitoring.serviceMonitors.labels", "Its older name."),
    _none("metrics.serviceMonitor.honorLabels", "Labels of our metrics always win: some say `namespace`."),
    _none("metrics.serviceMonitor.namespace", "Monitors are in the namespace of the release."),
    _none("metrics.enabled", "Metrics are always served."),
    _none("leaderElectionEnabled", "Replicas always agree on a leader."),
    _none("rbacEnable", "Our chart always makes the roles that its programs need."),
    _none("crNamespacedRbacEnable", "Roles in watched namespaces are always made."),
    _none(
        "featureGates",
        "What is behind a gate there is always on here, but for SidecarSubmitterRestart and KubernetesWAS.",
    ),
    _none("image", "Our own image is named by `image`."),
    _none("imagePullSecrets", "They are for KubeRay's image; ours are in `image.pullSecrets`."),
    _none("resources", "They were measured for another program: see `controller.resources`."),
    _none("replicas", "`controller.replicas` is for all controllers; two by default."),
    _none("reconcileConcurrency", "Objects do not wait for each other here: no reconcile waits for a dashboard."),
    _none("kubeClient", "Requests are paced by what the API server answers."),
    _none("logging", "Our logs have one format, and go to standard output."),
    _none("nodeSelector", "It is for KubeRay's own pod: see `controller.nodeSelector`."),
    _none("tolerations", "They are for KubeRay's own pod: see `controller.tolerations`."),
    _none("priorityClassName", "It is for KubeRay's own pod: see `controller.priorityClassName`."),
    *(
        _none(key, _POD)
        for key in ("affinity", "annotations", "hostUsers", "labels", "livenessProbe", "readinessProbe")
    ),
    *(_none(key, _RESTRICTED) for key in ("podSecurityContext", "securityContext")),
    _none("service", "Our metrics have a Service of their own."),
    _none("serviceAccount", "The controller has an account of its own."),
    _none("operatorCommand", "The program is another one."),
    *(_none(key, _NAMES) for key in ("componentOverride", "fullnameOverride", "nameOverride")),
)
"""A row is for a key and all keys below it."""

_BY_KEY: Final = {row.key: row for row in ROWS}
_SECTIONS: Final = {row.key.rsplit(".", depth)[0] for row in ROWS for depth in (1, 2) if row.key.count(".") >= depth}
"""Keys with rows below them."""
_ALREADY: Final[Mapping[str, object]] = {
    "leaderElectionEnabled": True,
    "rbacEnable": True,
    "crNamespacedRbacEnable": True,
    "metrics.enabled": True,
    "metrics.serviceMonitor.honorLabels": True,
    "singleNamespaceInstall": False,
}
"""Values that ask for what is so anyway."""


class Translation(msgspec.Struct, frozen=True):
    """Values for our chart, and notes about values that are not in it, or make no sense (these are `UNKNOWN`)."""

    values: Tree
    notes: tuple[KeyNote, ...] = ()


def translate(given: Mapping[str, Any]) -> Translation:
    """The same Ray, as values for our chart."""
    made: Tree = {"ray": {"enabled": True}}
    notes: list[KeyNote] = []
    for key, value in _leaves(given, ""):
        notes += _placed(made, key, value)
    notes += _contradictions(given)
    configuration = given.get("configuration")
    if isinstance(configuration, Mapping) and not configuration.get("enabled"):
        made["ray"].pop("configuration", None)
    return Translation(made, tuple(sorted(notes, key=lambda note: (note.mapping, note.key))))


def refused_keys(given: Mapping[str, Any], file: str) -> tuple[RefusedKey, ...]:
    """Keys that would have no effect, and values that make no sense."""
    return tuple(RefusedKey(file, note.key, note.why) for note in translate(given).notes)


def refused_by_kuberay(given: Mapping[str, Any], file: str) -> tuple[RefusedKey, ...]:
    """Keys that KubeRay's own chart does not have, and values that make no sense there."""
    unknown = (note for note in translate(given).notes if note.mapping is KeyMapping.UNKNOWN)
    return tuple(RefusedKey(file, note.key, note.why) for note in unknown)


def mapping_table() -> str:
    """The table of the migration guide. Neighbouring keys with the same answer share a line."""
    lines = ["| Value of KubeRay's chart | Here | |", "|--|--|--|"]
    for cells, rows in itertools.groupby(ROWS, key=_cells):
        lines.append(
            f"| {', '.join(f'`{row.key}`' for row in rows)} | {cells[0]} | {cells[1]} |".replace("|  |", "| |")
        )
    return "\n".join(lines) + "\n"


def _cells(row: MappingRow) -> tuple[str, str]:
    return (f"`{row.to}`" if row.mapping is KeyMapping.MAPPED else "no effect"), row.why


def _leaves(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Each key at the depth of the rows."""
    for name, value in tree.items():
        key = f"{above}{name}"
        if key in _SECTIONS and isinstance(value, Mapping):
            yield from _leaves(value, f"{key}.")
        elif value not in (None, "", [], {}):
            yield key, value


def _placed(made: Tree, key: str, value: Any) -> Iterator[KeyNote]:
    """Put a value where it goes; a note where it goes nowhere, or is not what it should be."""
    row = _BY_KEY.get(key)
    if row is None and key not in _SECTIONS:
        yield KeyNote(key, KeyMapping.UNKNOWN, "Neither chart has such a value.", value)
    elif row is None:
        yield KeyNote(key, KeyMapping.UNKNOWN, "This is a map, as in KubeRay's chart.", value)
    elif key in _ALREADY and value == _ALREADY[key]:
        return
    elif key == "featureGates":
        yield from _gates(value)
    elif row.mapping is KeyMapping.WITHOUT_EFFECT:
        yield KeyNote(key, row.mapping, row.why, value)
    elif key == "env":
        yield from _environment(made, value)
    elif key == "watchNamespace" and not _texts(value):
        yield KeyNote(key, KeyMapping.UNKNOWN, "This is a list of namespaces.", value)
    elif key == "batchScheduler.name" and value not in SCHEDULERS:
        yield KeyNote(key, KeyMapping.UNKNOWN, f"There are {', '.join(SCHEDULERS)}.", value)
    elif key == "batchScheduler.enabled":
        if value:
            _put(made, row.to, "volcano")
    elif key != "configuration.enabled":
        _put(made, row.to, value)


def _environment(made: Tree, given: object) -> Iterator[KeyNote]:
    if not isinstance(given, Sequence) or not all(isinstance(each, Mapping) and each.get("name") for each in given):
        yield KeyNote("env", KeyMapping.UNKNOWN, "This is a list of names and values.", given)
        return
    for each in given:
        name, value = str(each["name"]), each.get("value")
        key = f"env.{name}"
        if name in USELESS:
            yield KeyNote(key, KeyMapping.WITHOUT_EFFECT, USELESS[name], value)
        elif value is None:
            yield KeyNote(key, KeyMapping.WITHOUT_EFFECT, "It needs a plain value.", value)
        elif str(value) == "":
            continue  # As unset, there and here.
        elif name in TIMINGS and not str(value).isdecimal():
            yield KeyNote(key, KeyMapping.UNKNOWN, "This is a number of seconds.", value)
        elif name in SWITCHES and str(value).lower() not in ("true", "false"):
            yield KeyNote(key, KeyMapping.UNKNOWN, "This is true or false.", value)
        elif name in TIMINGS:
            _put(made, f"controller.timings.ray.{TIMINGS[name]}", f"{value}s")
        elif name in SWITCHES:
            _put(made, f"ray.env.{name}", str(value).lower())
        elif name == DOMAIN:
            _put(made, f"ray.env.{name}", str(value))
        else:
            yield KeyNote(key, KeyMapping.UNKNOWN, "KubeRay's operator reads no such variable.", value)


def _gates(given: object) -> Iterator[KeyNote]:
    """A gate that is on and served says nothing new."""
    if not isinstance(given, Sequence) or not all(isinstance(each, Mapping) and each.get("name") for each in given):
        yield KeyNote("featureGates", KeyMapping.UNKNOWN, "This is a list of names, each enabled or not.", given)
        return
    for each in given:
        name, on = str(each["name"]), bool(each.get("enabled"))
        key = f"featureGates.{name}"
        if name not in SERVED_GATES | UNSERVED_GATES:
            yield KeyNote(key, KeyMapping.UNKNOWN, "KubeRay has no such gate.", on)
        elif on and name in UNSERVED_GATES:
            yield KeyNote(key, KeyMapping.WITHOUT_EFFECT, "This part of KubeRay is not served here.", on)
        elif not on and name in SERVED_GATES:
            yield KeyNote(
                key, KeyMapping.WITHOUT_EFFECT, "This is always there; it acts only where a spec asks for it.", on
            )


def _contradictions(given: Mapping[str, Any]) -> Iterator[KeyNote]:
    """Values with which KubeRay's chart would not do what is meant either, and one that means another place here."""
    scheduler, namespaces = given.get("batchScheduler"), given.get("watchNamespace")
    if isinstance(scheduler, Mapping) and scheduler.get("name") and scheduler.get("enabled"):
        yield KeyNote("batchScheduler.enabled", KeyMapping.UNKNOWN, "It means Volcano, and excludes `name`.")
    if not given.get("singleNamespaceInstall") or (_texts(namespaces) and len(namespaces or []) == 1):
        return
    if namespaces:
        yield KeyNote("singleNamespaceInstall", KeyMapping.UNKNOWN, "It is for one namespace.")
    else:
        why = "Ours needs the namespace in `watchNamespace`: Ray cannot be in that of our own programs."
        yield KeyNote("singleNamespaceInstall", KeyMapping.WITHOUT_EFFECT, why)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _put(tree: Tree, path: str, value: Any) -> None:
    *way, last = path.split(".")
    for name in way:
        tree = tree.setdefault(name, {})
    tree[last] = value
