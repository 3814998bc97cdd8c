"""What validation reads of templates of pods, and of the Service of a head.

All that manifests are made from is here, also what is not looked at further: what cannot be read is so told to its
author once, and is a certainty afterwards.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class _View(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pass


_Parts = tuple[dict[str, Any], ...]
_Amounts = dict[str, int | float | str]


class EnvVar(_View, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""


class Mount(_View, frozen=True, kw_only=True):
    name: str = ""
    mount_path: str = ""


class Port(_View, frozen=True, kw_only=True):
    container_port: int
    name: str | None = None


class Resources(_View, frozen=True, kw_only=True):
    limits: _Amounts | None = None
    requests: _Amounts | None = None
    claims: _Parts | None = None


class Container(_View, frozen=True, kw_only=True):
    env: tuple[EnvVar, ...] = ()
    volume_mounts: tuple[Mount, ...] = ()
    ports: tuple[Port, ...] | None = None
    command: tuple[Any, ...] | None = None
    args: tuple[Any, ...] | None = None
    resources: Resources | None = None


class Volume(_View, frozen=True, kw_only=True):
    name: str = ""


class PodSpec(_View, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    volumes: tuple[Volume, ...] = ()
    affinity: dict[str, Any] | None = None
    resource_claims: _Parts | None = None
    scheduling_gates: _Parts | None = None
    restart_policy: str = ""

    def env(self) -> Mapping[str, str]:
        """Variables of the Ray container, which is the first."""
        return {one.name: one.value for one in self.containers[0].env} if self.containers else {}


class Metadata(_View, frozen=True, kw_only=True):
    name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Template(_View, frozen=True, kw_only=True):
    metadata: Metadata | None = None
    spec: PodSpec = PodSpec()


class ServicePort(_View, frozen=True, kw_only=True):
    name: str | None = None


class ServiceSpec(_View, frozen=True, kw_only=True):
    type: str | None = None
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] | None = None


class Service(_View, frozen=True, kw_only=True):
    metadata: Metadata | None = None
    spec: ServiceSpec | None = None


def read_template(template: Mapping[str, Any]) -> Template | str:
    """The template, or why it is none."""
    return _read(template, Template)


def read_service(service: Mapping[str, Any]) -> Service | str:
    """The Service, or why it is none."""
    return _read(service, Service)


def pod_spec(template: Mapping[str, Any]) -> PodSpec:
    """The pod of a template; an empty one where it cannot be read, which is a fault of its own."""
    read = read_template(template)
    return read.spec if isinstance(read, Template) else PodSpec()


def _read[T](part: Mapping[str, Any], kind: type[T]) -> T | str:
    try:
        return msgspec.convert(part, kind)
    except msgspec.ValidationError as error:
        return str(error)
