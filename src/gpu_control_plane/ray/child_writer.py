"""Writes the objects that belong to an object of Ray: created when missing, changed where they differ from what they
should be, never taken from another owner.

Users and defaults of the API server may add to such an object. It differs if a value that we want is another, or if
what we want has changed since it was written: then server-side apply also removes what is no longer wanted. For that,
the fields that an object was created with count as applied: otherwise a changed port would stand beside the new one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu_control_plane.api.names import GROUP
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import AlreadyExists, KubeError
from gpu_control_plane.kube.objects import FieldManager, Object
from gpu_control_plane.kube.transport import Call
from gpu_control_plane.ray.owned import is_owned

MANAGER: Final = FieldManager("gpu-ray")
MANIFEST_HASH: Final = f"{GROUP}/manifest-hash"
"""The annotation that says what an object was last written as."""
_CREATORS: Final = frozenset({"gpu-control-plane", "manager", "kuberay-operator"})
"""Whose creations are ours: this operator's, by the name of its client, and KubeRay's."""


class BelongsToAnother(KubeError):
    """An object of the name that we need is there, and is not ours."""


class ChildWriter:
    """The one writer of objects that have an owner of Ray."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ensure[T: Object](
        self, kind: type[T], owner: Object, manifest: Mapping[str, Any], held: T | None
    ) -> tuple[T, bool]:
        """Make the object be there and be as `manifest` says; the object, and whether it was written.

        `manifest` is a whole one, with name, labels and the owner as its controller; `held` is what a cache shows.
        """
        metadata = manifest["metadata"]
        name, namespace = metadata["name"], owner.metadata.namespace
        if held is not None and not is_owned(held, owner):
            raise BelongsToAnother(_taken(kind, name, owner))
        digest = manifest_hash(manifest)
        if held is not None and held.metadata.annotations.get(MANIFEST_HASH) == digest and covers(held, manifest):
            return held, False
        body = {
            **manifest,
            "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), MANIFEST_HASH: digest}},
        }
        if held is not None:
            return await self._apply(kind, name, body, namespace), True
        try:
            return await self._client.create(kind, body, namespace), True
        except AlreadyExists:
            # It may be ours, and the cache not there yet.
            there = await self._client.get(kind, name, namespace)
            if not is_owned(there, owner):
                raise BelongsToAnother(_taken(kind, name, owner)) from None
            return await self._apply(kind, name, body, namespace), True

    async def _apply[T: Object](self, kind: type[T], name: str, body: Mapping[str, Any], namespace: str | None) -> T:
        path, resource = kind.resource.path(namespace, name), kind.resource.qualified_name
        found = await self._client.transport.send(Call(method="GET", path=path, verb="get", resource=resource))
        metadata = msgspec.json.decode(found, type=_Managed).metadata
        applied = as_applied(metadata.managed_fields)
        if applied != metadata.managed_fields:
            patch = {"metadata": {"uid": metadata.uid, "managedFields": applied}}
            version = metadata.resource_version
            await self._client.patch(kind, name, patch, namespace=namespace, resource_version=version)
        return await self._client.apply(kind, name, body, manager=MANAGER, namespace=namespace)

    async def create_once[T: Object](self, kind: type[T], owner: Object, manifest: Mapping[str, Any]) -> tuple[T, bool]:
        """Make the object unless it is there, and leave one of ours that is there as it is; the object, and whether it
        was made."""
        namespace = owner.metadata.namespace
        try:
            return await self._client.create(kind, manifest, namespace), True
        except AlreadyExists:
            name = manifest["metadata"]["name"]
            there = await self._client.get(kind, name, namespace)
            if not is_owned(there, owner):
                raise BelongsToAnother(_taken(kind, name, owner)) from None
            return there, False


class _ManagedMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource_version: str
    managed_fields: list[dict[str, Any]] = []


class _Managed(msgspec.Struct, frozen=True):
    metadata: _ManagedMeta


def as_applied(managed: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The `managedFields` of an object with what its creator has set as part of what we have applied, so that it goes
    when it is no longer applied. What users have set stays theirs."""
    ours = [
        entry
        for entry in managed
        if not entry.get("subresource")
        and (entry["operation"], entry["manager"]) in {("Apply", MANAGER), *(("Update", name) for name in _CREATORS)}
    ]
    if all(entry["operation"] == "Apply" for entry in ours):
        return [dict(entry) for entry in managed]
    fields: dict[str, Any] = {}
    for entry in ours:
        fields = _united(fields, entry.get("fieldsV1") or {})
    kept = next((entry for entry in ours if entry["operation"] == "Apply"), ours[0])
    made = {**kept, "manager": MANAGER, "operation": "Apply", "fieldsV1": fields}
    return [made, *(dict(entry) for entry in managed if entry not in ours)]


def _united(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, **{key: _united(one.get(key, {}), value) for key, value in other.items()}}


def covers(held: Object, manifest: Mapping[str, Any]) -> bool:
    """Whether all that the manifest says holds for the object; what the object has beyond it does not count."""
    there: Mapping[str, Any] = msgspec.to_builtins(held)
    known = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind") and key in there}
    return _within(known, there)


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """A short name for what a manifest says."""
    return hashlib.sha256(msgspec.json.encode(manifest, order="deterministic")).hexdigest()[:16]


def _within(wanted: object, there: object) -> bool:
    match wanted:
        case Mapping():
            return isinstance(there, Mapping) and all(
                _within(value, there.get(key)) for key, value in wanted.items() if value not in (None, {}, [])
            )
        case str() | bytes():
            return wanted == there
        case Sequence():
            return (
                isinstance(there, Sequence)
                and len(wanted) == len(there)
                and all(_within(*pair) for pair in zip(wanted, there, strict=True))
            )
        case _:
            return wanted == there


def _taken(kind: type[Object], name: str, owner: Object) -> str:
    return (
        f"{kind.resource.kind} {name} is needed for {owner.resource.kind} {owner.name}, and belongs to something else: "
        "rename one of the two, or delete it"
    )
