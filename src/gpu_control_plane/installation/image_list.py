"""Which images an installation needs, from its manifests as Helm renders them: for sites that mirror images. Pure.

Beside the pods that manifests have, the operator will make pods for a ClusterPolicy and for NVIDIADrivers. Those are
rendered here by the operator's own code, so that the list and the pods cannot differ.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.installation.declare import Declared
from gpu_control_plane.operator.cluster_policy import parse_policy, uses_driver_crd
from gpu_control_plane.operator.drivers.ownership_index import parse_driver
from gpu_control_plane.operator.drivers.render import render_driver
from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.render import RenderedState, render_policy
from gpu_control_plane.operator.stack.render_input import Platform, RenderError, RenderInput

type Manifest = dict[str, Any]

DECLARE: Final = "gpu_control_plane.installation.declare"
_RAY_DEFAULTS: Final = "gpu-control-plane-ray-defaults"
_IMAGE_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*_IMAGE")
_SYSTEM: Final = re.compile(r"([a-z]+)([0-9][0-9.]*)")
_BY_SYSTEM: Final = frozenset({"state-driver", "state-vgpu-manager"})
"""States whose image depends on the operating system of a node."""
_SAY_SYSTEM: Final = (
    "the image depends on the nodes: say which systems they have, as in --os ubuntu24.04, and for precompiled drivers "
    "which kernels, as in --kernel 6.8.0-60-generic"
)


class BadSystem(ValueError):
    """A name that is no operating system."""


class UsedImage(msgspec.Struct, frozen=True):
    """An image, and the objects whose pods run it."""

    image: str
    used_by: tuple[str, ...]


class ImageList(msgspec.Struct, frozen=True):
    """The images, by name, and what could not be found out."""

    images: tuple[UsedImage, ...]
    problems: tuple[str, ...] = ()


def operating_system(name: str) -> OperatingSystem:
    """An operating system by its name in tags of images, such as `ubuntu24.04` or `rhel9.4`."""
    found = _SYSTEM.fullmatch(name)
    if found is None:
        raise BadSystem(f"{name!r} is no name and version, such as ubuntu24.04 or rhel9")
    return OperatingSystem(found[1], found[2])


def list_images(
    documents: Iterable[Manifest], systems: Sequence[OperatingSystem] = (), kernels: Sequence[str] = ()
) -> ImageList:
    """The images of all pods that manifests have or lead to, on nodes with these systems and kernels."""
    manifests = list(_flattened(documents))
    used: dict[str, list[str]] = {}
    for manifest in manifests:
        _count(used, manifest, f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}")
        for sidecar in _ray_sidecars(manifest):
            _count(used, {"spec": {"containers": [sidecar]}}, f"pods of Ray, sidecar {sidecar.get('name')}")
    problems = []
    for about, rendered in _stack(manifests, systems, kernels):
        if isinstance(rendered, str):
            problems.append(f"{about}: {rendered}")
        else:
            _count(used, rendered, f"{about}, DaemonSet {rendered['metadata']['name']}")
    return ImageList(
        tuple(UsedImage(image, tuple(dict.fromkeys(users))) for image, users in sorted(used.items())), tuple(problems)
    )


def _flattened(documents: Iterable[Manifest]) -> Iterator[Manifest]:
    """Manifests, also those inside a List."""
    for document in documents:
        if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
            yield from _flattened(document["items"])
        else:
            yield document


def _count(used: dict[str, list[str]], manifest: Manifest, user: str) -> None:
    for container in _containers(manifest):
        if image := container.get("image"):
            used.setdefault(image, []).append(user)


def _containers(manifest: Manifest) -> Iterator[Manifest]:
    """The containers of a pod, or of the pods that a workload makes."""
    spec = manifest.get("spec") or {}
    pod = spec.get("jobTemplate", {}).get("spec", spec).get("template", {}).get("spec", spec)
    for part in ("initContainers", "containers"):
        yield from pod.get(part) or ()


def _ray_sidecars(manifest: Manifest) -> Iterator[Manifest]:
    """Containers that the operator of Ray adds to its pods, as its ConfigMap has them."""
    if manifest.get("kind") == "ConfigMap" and manifest["metadata"].get("name") == _RAY_DEFAULTS:
        for text in manifest["data"].values():
            defaults = yaml.safe_load(text)
            for part in ("headSidecarContainers", "workerSidecarContainers"):
                yield from defaults.get(part) or ()


def _stack(
    manifests: Sequence[Manifest], systems: Sequence[OperatingSystem], kernels: Sequence[str]
) -> Iterator[tuple[str, Manifest | str]]:
    """The DaemonSets that the operator would make, or why it would not, each with the object it makes them for."""
    declared = [*_declared(manifests), *_direct(manifests)]
    platform = Platform(namespace="", images=_image_variables(manifests), config_maps=_EveryConfigMap())
    policy: ClusterPolicySpec | None = None
    for each in declared:
        if each.kind == "ClusterPolicy":
            about = f"ClusterPolicy {each.name}"
            parsed = parse_policy(_stored(each, StoredClusterPolicy))
            policy = parsed.spec
            if policy is None or parsed.problem:
                yield about, parsed.problem
            else:
                kinds = dict.fromkeys(_kinds(systems, kernels), 1)
                for state in render_policy(RenderInput(policy=policy, platform=platform, kinds=kinds)):
                    yield from ((about, found) for found in _daemonsets(state, known=bool(systems)))
    if not uses_driver_crd(policy):
        return
    nodes = [_node(kind) for kind in _kinds(systems, kernels) if kind.system is not None]
    for each in declared:
        if each.kind == "NVIDIADriver":
            about = f"NVIDIADriver {each.name}"
            try:
                made = render_driver(parse_driver(_stored(each, StoredNVIDIADriver)), nodes, platform, policy)
            except RenderError as error:
                yield about, str(error)
                continue
            yield from ((about, found) for found in made if found["kind"] == "DaemonSet")
            if not made:
                yield about, _SAY_SYSTEM


def _daemonsets(state: RenderedState, *, known: bool) -> Iterator[Manifest | str]:
    """The DaemonSets of a state, or why there are none; `known` says whether nodes were described."""
    yield from state.daemonsets
    if state.enabled and not state.daemonsets and not known and state.state in _BY_SYSTEM:
        yield f"{state.state}: {_SAY_SYSTEM}"
    elif state.problem:
        yield f"{state.state}: {state.problem}"


def _declared(manifests: Iterable[Manifest]) -> Iterator[Declared]:
    """The objects that the chart's job would make."""
    for manifest in manifests:
        for container in _containers(manifest):
            command = [str(word) for word in container.get("command") or ()]
            if DECLARE in command:
                for text in command[command.index(DECLARE) + 1 :]:
                    yield msgspec.json.decode(text.replace("$$", "$"), type=Declared)  # $$ is the kubelet's $


def _direct(manifests: Iterable[Manifest]) -> Iterator[Declared]:
    """Objects that are there already, as `kubectl get -o yaml` shows them."""
    for manifest in manifests:
        if manifest.get("kind") in ("ClusterPolicy", "NVIDIADriver"):
            metadata = {"name": manifest["metadata"]["name"]}
            yield msgspec.convert({**manifest, "metadata": metadata}, Declared)


def _image_variables(manifests: Iterable[Manifest]) -> Mapping[str, str]:
    """What names images that a policy does not name, in the environment of the controller."""
    return {
        variable["name"]: variable["value"]
        for manifest in manifests
        if manifest.get("kind") == "Deployment"
        for container in _containers(manifest)
        for variable in container.get("env") or ()
        if _IMAGE_VARIABLE.fullmatch(variable["name"]) and "value" in variable
    }


def _stored[T: StoredClusterPolicy | StoredNVIDIADriver](declared: Declared, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode({"metadata": declared.metadata, "spec": declared.spec}), type=kind)


def _kinds(systems: Sequence[OperatingSystem], kernels: Sequence[str]) -> list[NodeKind]:
    return [NodeKind(system=system, kernel=kernel) for system in systems or (None,) for kernel in kernels or ("",)]


def _node(kind: NodeKind) -> Node:
    system = kind.system or OperatingSystem("", "")
    labels = {
        NodeLabel.OS_ID: system.id,
        NodeLabel.OS_VERSION: system.version,
        NodeLabel.OS_MAJOR: system.version.partition(".")[0],
        NodeLabel.KERNEL: kind.kernel,
    }
    return msgspec.convert(
        {"metadata": {"name": "any", "labels": {str(key): text for key, text in labels.items()}}}, Node
    )


class _EveryKey(Mapping[str, str]):
    """The content of a ConfigMap that nobody knows here, and that names no image: it has whatever is asked for."""

    def __getitem__(self, key: str) -> str:
        return ""

    def __contains__(self, key: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _EveryConfigMap(Mapping[str, Mapping[str, str]]):
    """Each ConfigMap that a policy may name."""

    def __getitem__(self, key: str) -> Mapping[str, str]:
        return _EveryKey()

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
