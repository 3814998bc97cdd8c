"""Where each value of NVIDIA's Helm chart goes. Data for the command and for the table in the migration guide.

A row is for a key and all keys below it; the longest row that matches a key decides. What the rows map to
`clusterPolicy.spec` or `nvidiaDriver.spec` is then checked against the Python types of these kinds, which know each
field and whether it has an effect.
"""

import itertools
from typing import Final

from gpu_control_plane.api.nvidia.clusterpolicy import ClusterPolicySpec
from gpu_control_plane.migration.key_mapping import KeyMapping, MappingRow
from gpu_control_plane.operator.migration.fields import ineffective_under

SPEC: Final = "clusterPolicy.spec"
DRIVER_SPEC: Final = "nvidiaDriver.spec"


def _same(section: str) -> MappingRow:
    return MappingRow(section, KeyMapping.SAME, f"{SPEC}.{section}")


def _to(key: str, to: str, why: str = "", *, omit_default: bool = False) -> MappingRow:
    return MappingRow(key, KeyMapping.MAPPED, to, why, omit_default)


def _none(key: str, why: str, *, always: bool = False) -> MappingRow:
    return MappingRow(key, KeyMapping.WITHOUT_EFFECT, why=why, always=always)


_OUR_IMAGE = "Our own image is named by `image`."
_NFD = "Our chart brings no Node Feature Discovery: install it by its own chart before NVIDIA's release goes."
_DRA = "The DRA stack is not served here."
_BY_HAND = "Our chart makes no such ConfigMap: keep the one that exists, and name it in `config.name`."

ROWS: Final = (
    *map(_same, ("operator.runtimeClass", "operator.metrics", "operator.use_ocp_driver_toolkit")),
    *map(_same, ("operator.defaultRuntime", "operator.initContainer", "daemonsets")),
    _to(
        "operator.env",
        "operator.images",
        "Variables that name an image; others have no effect. `DRIVER_MANAGER_IMAGE` and `VALIDATOR_IMAGE` come along.",
    ),
    _to("operator.nodeSelector", "controller.nodeSelector", omit_default=True),
    _to("operator.tolerations", "controller.tolerations", omit_default=True),
    _to("operator.priorityClassName", "controller.priorityClassName", omit_default=True),
    _to("operator.upgradeCRD", "crds.install"),
    _to("operator.cleanupCRD", "crds.removeOnUninstall"),
    _to("operator.logging.level", "logLevel"),
    _none("operator.logging.timeEncoding", "Our logs have one format."),
    _none("operator.logging.develMode", "Our logs have one format."),
    *(
        _none(f"operator.{key}", _OUR_IMAGE)
        for key in ("repository", "image", "version", "imagePullPolicy", "imagePullSecrets")
    ),
    _none("operator.resources", "They were measured for another program: see `controller.resources`."),
    _none("operator.affinity", "`controller.nodeSelector` says where our controllers run."),
    _none("operator.annotations", "They are for the pods of NVIDIA's operator."),
    _none("operator.labels", "They are for the pods of NVIDIA's operator."),
    _none("operator.hostNetwork", "Our controllers need no network of the node."),
    _to("driver.nvidiaDriverCRD.enabled", f"{SPEC}.driver.useNvidiaDriverCRD"),
    _to("driver.nvidiaDriverCRD.deployDefaultCR", "nvidiaDriver.create", "Together with `enabled`."),
    _to("driver.nvidiaDriverCRD.driverType", f"{DRIVER_SPEC}.driverType"),
    _none(
        "driver.nvidiaDriverCRD.nodeSelector", "NVIDIA's chart does not use it: the default driver is for all nodes."
    ),
    _to("driver.upgradePolicy.gpuPodDeletion", f"{SPEC}.driver.upgradePolicy.podDeletion"),
    MappingRow(
        "driver",
        KeyMapping.SAME,
        f"{SPEC}.driver",
        f"With `driver.nvidiaDriverCRD.enabled` to `{DRIVER_SPEC}` instead, as `repoConfig.name`, "
        "`licensingConfig.name` and `virtualTopologyConfig.name` where the names differ.",
    ),
    *(
        _none(f"{section}.config.{key}", _BY_HAND)
        for section in ("devicePlugin", "dcgmExporter", "migManager")
        for key in ("create", "data")
    ),
    *map(_same, ("toolkit", "devicePlugin", "dcgm", "dcgmExporter", "gfd", "mig", "migManager", "nodeStatusExporter")),
    *map(_same, ("validator", "gds", "gdrcopy", "sandboxWorkloads", "vfioManager", "vgpuManager")),
    *map(_same, ("vgpuDeviceManager", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "ccManager", "kataManager")),
    *map(_same, ("cdi", "psa", "psp", "hostPaths")),
    _to("clusterPolicy.deployCR", "clusterPolicy.create"),
    _none("gpuCluster", _DRA),
    _none("draDriver", _DRA),
    _none("nfd.enabled", _NFD, always=True),
    _none("nfd.nodefeaturerules", _NFD),
    _none("node-feature-discovery", _NFD),
    _none("platform.openshift", "It only changes what NVIDIA's chart itself renders."),
    _none("extraObjects", "Apply these objects yourself."),
    _none("nameOverride", "It only names parts of NVIDIA's release."),
    _none("fullnameOverride", "It only names parts of NVIDIA's release."),
    _none("global", "It is for charts inside NVIDIA's chart."),
)

RENAMED_FOR_DRIVER: Final = {
    ("repoConfig", "configMapName"): ("repoConfig", "name"),
    ("licensingConfig", "configMapName"): ("licensingConfig", "name"),
    ("virtualTopology", "config"): ("virtualTopologyConfig", "name"),
    ("upgradePolicy", "gpuPodDeletion"): ("upgradePolicy", "podDeletion"),
}
"""Fields of a driver that have another name in an NVIDIADriver."""

_BY_PATH: Final = {row.path: row for row in ROWS}
PREFIXES: Final = frozenset(row.path[:length] for row in ROWS for length in range(len(row.path)))
"""Paths with a row somewhere below them."""


def row_for(path: tuple[str, ...]) -> MappingRow | None:
    """The row that decides about a key; None for an unknown key."""
    return next((_BY_PATH[path[:length]] for length in range(len(path), 0, -1) if path[:length] in _BY_PATH), None)


def mapping_table() -> str:
    """The table of the migration guide. Neighbouring keys with the same mapping share a line."""
    lines = ["| Value of NVIDIA's chart | Here | |", "|--|--|--|"]
    ineffective = [path for path in ineffective_under(ClusterPolicySpec, ()) if row_for(path) in _SAME_ROWS]
    for cells, rows in itertools.groupby((row for row in ROWS if row.path not in ineffective), key=_cells):
        lines.append(
            f"| {', '.join(f'`{row.key}`' for row in rows)} | {cells[0]} | {cells[1]} |".replace("|  |", "| |")
        )
    keys = ", ".join(f"`{'.'.join(path)}`" for path in ineffective)
    lines.append(f"| {keys} | no effect | Accepted in a ClusterPolicy, without effect. |")
    return "\n".join(lines) + "\n"


_SAME_ROWS: Final = tuple(row for row in ROWS if row.mapping is KeyMapping.SAME)


def _cells(row: MappingRow) -> tuple[str, str]:
    match row.mapping:
        case KeyMapping.SAME:
            return f"the same key under `{SPEC}`", row.why
        case KeyMapping.MAPPED:
            return f"`{row.to}`", row.why
        case _:
            return "no effect", row.why
