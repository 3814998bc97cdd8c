"""Small changes to containers and specs of pods, in place. What a user has set stays, unless it is ours to set."""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

Part = MutableMapping[str, Any]


def members(part: Part, name: str) -> list[Any]:
    """A list of a part, made where there is none."""
    held = part.get(name)
    if held is None:
        held = part[name] = []
    found: list[Any] = held
    return found


def entries(part: Part, name: str) -> dict[str, Any]:
    """A map of a part, made where there is none."""
    held = part.get(name)
    if held is None:
        held = part[name] = {}
    found: dict[str, Any] = held
    return found


def ray_container(spec: Part) -> Part:
    """The container that runs Ray: the first."""
    found: Part = spec["containers"][0]
    return found


def has_env(container: Mapping[str, Any], name: str) -> bool:
    return any(held.get("name") == name for held in container.get("env") or ())


def put_env(container: Part, name: str, value: str = "", source: Mapping[str, Any] | None = None) -> None:
    """Set a variable that is ours: one of that name is replaced, for of two the last would count anyway."""
    kept = [held for held in members(container, "env") if held.get("name") != name]
    container["env"] = [*kept, _variable(name, value, source)]


def default_env(container: Part, name: str, value: str = "", source: Mapping[str, Any] | None = None) -> None:
    """Set a variable unless it is there."""
    if not has_env(container, name):
        members(container, "env").append(_variable(name, value, source))


def field_env(container: Part, name: str, path: str) -> None:
    """Set a variable that is ours to a field of the pod."""
    put_env(container, name, source={"fieldRef": {"fieldPath": path}})


def has_mount(container: Mapping[str, Any], *, name: str = "", path: str = "") -> bool:
    return any(
        (name and held.get("name") == name) or (path and held.get("mountPath") == path)
        for held in container.get("volumeMounts") or ()
    )


def add_mount(container: Part, name: str, path: str, **more: Any) -> None:
    members(container, "volumeMounts").append({"name": name, "mountPath": path, **more})


def add_volume(spec: Part, name: str, source: Mapping[str, Any]) -> None:
    """Add a volume unless one of its name is there."""
    if not any(held.get("name") == name for held in spec.get("volumes") or ()):
        members(spec, "volumes").append({"name": name, **source})


def port_named(container: Mapping[str, Any], name: str) -> int | None:
    """The number of a port."""
    for held in container.get("ports") or ():
        if held.get("name") == name:
            return int(held["containerPort"])
    return None


def like_ray(container: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The parts of this name that the Ray container has, for one that works beside it."""
    return {name: container[name] for name in names if container.get(name) is not None}


def equal_resources(cpu: str, memory: str) -> dict[str, Any]:
    """Limits that are requests, too: for small containers of ours, which quotas of namespaces demand to have both."""
    return {kind: {"cpu": cpu, "memory": memory} for kind in ("limits", "requests")}


def _variable(name: str, value: str, source: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"name": name, "valueFrom": dict(source)} if source is not None else {"name": name, "value": value}
