"""What validation reads of templates of pods."""

from collections.abc import Mapping
from typing import Any

import msgspec


class _View(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pass


class EnvVar(_View, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""


class Mount(_View, frozen=True, kw_only=True):
    name: str = ""
    mount_path: str = ""


class Container(_View, frozen=True, kw_only=True):
    env: tuple[EnvVar, ...] = ()
    volume_mounts: tuple[Mount, ...] = ()


class Volume(_View, frozen=True, kw_only=True):
    name: str = ""


class PodSpec(_View, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = ""

    def env(self) -> Mapping[str, str]:
        """Variables of the Ray container, which is the first."""
        return {one.name: one.value for one in self.containers[0].env} if self.containers else {}


class Template(_View, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()


def read_template(template: Mapping[str, Any]) -> Template | str:
    """The template, or why it is none."""
    try:
        return msgspec.convert(template, Template)
    except msgspec.ValidationError as error:
        return str(error)


def pod_spec(template: Mapping[str, Any]) -> PodSpec:
    """The pod of a template; an empty one where it cannot be read, which is a fault of its own."""
    read = read_template(template)
    return read.spec if isinstance(read, Template) else PodSpec()
