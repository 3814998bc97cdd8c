"""The files of a rendering."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from gpu_control_plane.gitops import applications
from gpu_control_plane.gitops.applications import Manifest, Source
from gpu_control_plane.gitops.gpu_operator import Stack, stack_values
from gpu_control_plane.gitops.kuberay import refused_by_kuberay, refused_keys, translate
from gpu_control_plane.gitops.refusals import RefusedKey, UnsupportedKeys
from gpu_control_plane.kube.written_yaml import overlaid

_HEADER: Final = "# Written by `kubectl gpu gitops render`. Change the values it was made from, and run it again.\n"


class ValuesFile(msgspec.Struct, frozen=True):
    name: str
    values: dict[str, Any]


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What people keep in git."""

    gpu_operator: ValuesFile | None = None
    """Values of NVIDIA's gpu-operator."""
    ours: ValuesFile | None = None
    """Values of our chart, over those."""
    kuberay: ValuesFile | None = None
    """Values of KubeRay's chart."""
    keep_kuberay: bool = False
    """Whether KubeRay's own operator looks after Ray, and not ours."""
    ignored: frozenset[str] = frozenset()
    """Keys of the upstream charts that may go nowhere: a person has said so."""


def render(inputs: Inputs, source: Source) -> dict[str, str]:
    """The files by their paths. Keys that would have no effect are refused, all at once."""
    stack = _stack(inputs)
    ray = _ray(inputs)
    if refused := [key for key in (*stack.refused, *ray.refused) if not _ignored(key, inputs.ignored)]:
        raise UnsupportedKeys(refused)
    values = overlaid({"image": {"repository": f"{source.registry}/{applications.STACK}"}}, stack.values)
    values = overlaid(overlaid(values, ray.values), inputs.ours.values if inputs.ours else {})
    made = [applications.stack_application(source, values), applications.pools_application(source)]
    if stack.nfd is not None:
        made.append(applications.nfd_application(source, stack.nfd))
    if inputs.kuberay is not None and inputs.keep_kuberay:
        made.append(applications.kuberay_application(source, inputs.kuberay.values))
    files = {f"applications/{each['metadata']['name']}.yaml": _written(each) for each in made}
    return {"root.yaml": _written(applications.root_application(source)), **files}


def _stack(inputs: Inputs) -> Stack:
    """Without values of NVIDIA's chart there is none of its stack: our agent, and our own discovery of nodes."""
    if inputs.gpu_operator is not None:
        return stack_values(inputs.gpu_operator.values, inputs.gpu_operator.name)
    return Stack(values={"discovery": {"enabled": True}}, nfd=None, refused=())


def _ray(inputs: Inputs) -> Stack:
    """Which operator looks after Ray: ours, unless KubeRay's is to be kept. Without values of KubeRay's chart our own
    values say it."""
    given = inputs.kuberay
    if given is None:
        return Stack(values={}, nfd=None, refused=())
    if inputs.keep_kuberay:
        return Stack(values={"ray": {"enabled": False}}, nfd=None, refused=refused_by_kuberay(given.values, given.name))
    return Stack(values=translate(given.values).values, nfd=None, refused=refused_keys(given.values, given.name))


def _ignored(key: RefusedKey, ignored: frozenset[str]) -> bool:
    return any(key.key == each or key.key.startswith(f"{each}.") for each in ignored)


def _written(manifest: Manifest) -> str:
    return _HEADER + yaml.safe_dump(_plain(manifest), sort_keys=False, width=120, allow_unicode=True)


def _plain(value: Any) -> Any:
    """A copy, so that equal parts are written out and not referred to."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
