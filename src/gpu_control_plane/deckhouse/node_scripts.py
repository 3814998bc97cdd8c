"""NodeGroupConfigurations: the scripts that Deckhouse runs on nodes, every few hours and whenever they change.

Each is idempotent, and uses Deckhouse's own functions (`bb-…`), so that restarts and reboots happen when Deckhouse
allows them. The scripts themselves are files in `scripts/`; names in @ are replaced here.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Literal

from gpu_control_plane.deckhouse.certificates import pem
from gpu_control_plane.deckhouse.description import ClusterDescription, FileReference, NodeGroup
from gpu_control_plane.deckhouse.kinds import Metadata
from gpu_control_plane.deckhouse.kinds.nodes import Bundles, NodeGroupConfiguration, NodeGroupConfigurationSpec

PACKAGE_MANAGERS: Mapping[str, Literal["apt", "dnf"]] = {"ubuntu-lts": "apt", "debian": "apt", "centos": "dnf"}
"""Distributions for which NVIDIA has packages."""
USUAL_DRIVERS: Mapping[str, str] = {"ubuntu-lts": "nvidia-driver-575-server"}
"""Where a package of the distribution itself has the driver. Elsewhere its name depends on release and repositories."""
_BEFORE_THE_GPU_CHECK_WEIGHT = 5
"""Of Deckhouse's own steps, 006 fails the node if driver or toolkit are missing."""
_DRIVER_WEIGHT = 30
_CONTAINERD_WEIGHT = 31
"""Step 032 writes containerd's configuration."""
_TOOLKIT = "nvidia-container-toolkit"


def node_scripts(cluster: ClusterDescription, files: Mapping[FileReference, str]) -> Iterator[NodeGroupConfiguration]:
    with_cards = [group for group in cluster.node_groups if group.gpu and group.gpu.setup in ("Scripts", "Native")]
    yield from _drivers(with_cards)
    yield from _runtimes(cluster, [group for group in with_cards if group.gpu and group.gpu.setup == "Scripts"])
    for each in cluster.registry_certificates:
        content = _filled("registry-certificate.sh", NAME=each.name, CERTIFICATE=pem(files[each.certificate]).strip())
        yield _configuration(f"add-{each.name}-registry-cert.sh", ("*",), ("*",), _CONTAINERD_WEIGHT, content)


def _drivers(groups: Iterable[NodeGroup]) -> Iterator[NodeGroupConfiguration]:
    """One script for all groups that need the same."""
    for number, ((content, bundle, weight), same) in enumerate(_grouped((group, _driver(group)) for group in groups)):
        name = f"install-cuda-{same[0]}.sh" if number else "install-cuda.sh"
        yield _configuration(name, same, (bundle,), weight, content)


def _driver(group: NodeGroup) -> tuple[str, Bundles, int]:
    gpu = group.gpu
    assert gpu is not None  # noqa: S101 - the caller chose groups with cards
    content = _filled(
        f"install-driver-{PACKAGE_MANAGERS[group.bundle]}.sh",
        DRIVER=gpu.driver or USUAL_DRIVERS[group.bundle],
        PACKAGES=" ".join((_TOOLKIT, *gpu.packages)),
        REPOSITORY=gpu.toolkit_repository,
        STREAM=gpu.driver_stream or ("open-dkms" if gpu.driver == "nvidia-open" else ""),
        FINISH=_filled("install-driver-finish.sh").strip(),
    )
    return content, group.bundle, _BEFORE_THE_GPU_CHECK_WEIGHT if gpu.setup == "Native" else _DRIVER_WEIGHT


def _runtimes(cluster: ClusterDescription, groups: Iterable[NodeGroup]) -> Iterator[NodeGroupConfiguration]:
    names: set[str] = set()
    for (content, version), same in _grouped((group, _runtime(cluster, group)) for group in groups):
        stem = "containerd-additional-config" if version == "V1" else "containerd-v2-additional-config"
        name = f"{stem}.sh" if f"{stem}.sh" not in names else f"{stem}-{same[0]}.sh"
        names.add(name)
        yield _configuration(name, same, ("*",), _CONTAINERD_WEIGHT, content)


def _runtime(cluster: ClusterDescription, group: NodeGroup) -> tuple[str, str]:
    version = cluster.containerd_of(group)
    line = '      default_runtime_name = "nvidia"\n' if group.gpu and group.gpu.default_runtime else ""
    return _filled(f"containerd-{version.lower()}.sh").replace("@DEFAULT@\n", line), version


def _grouped[Key](pairs: Iterable[tuple[NodeGroup, Key]]) -> Iterator[tuple[Key, tuple[str, ...]]]:
    """What is needed, with the names of all groups that need it, in the description's order."""
    found: dict[Key, list[str]] = {}
    for group, key in pairs:
        found.setdefault(key, []).append(group.name)
    for key, names in found.items():
        yield key, tuple(names)


def _configuration(
    name: str, groups: tuple[str, ...], bundles: tuple[Bundles, ...], weight: int, content: str
) -> NodeGroupConfiguration:
    return NodeGroupConfiguration(
        metadata=Metadata(name=name),
        spec=NodeGroupConfigurationSpec(node_groups=groups, bundles=bundles, weight=weight, content=content),
    )


def _filled(script: str, **values: str) -> str:
    text = (resources.files("gpu_control_plane.deckhouse") / "scripts" / script).read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
