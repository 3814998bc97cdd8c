"""A plan: what is about to be written, what that leads to, and what is refused. Pure data.

It is shown as a dry run, by the command and by the console, and carried out as it is: nothing is decided in between.
"""

import hashlib
import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Self

import msgspec

from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.kube.objects import Object


class Target(StrEnum):
    """What an edit is of."""

    CARD = "GPUDevice"
    POOL = "GPUPool"

    @property
    def kind(self) -> type[GPUDevice] | type[GPUPool]:
        return _KINDS[self]


_KINDS: Final[Mapping[str, type[GPUDevice] | type[GPUPool]]] = {"GPUDevice": GPUDevice, "GPUPool": GPUPool}


class Edit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change of one object, bound to what it was planned on."""

    target: Target
    name: str
    resource_version: str
    basis: str
    """A digest of what the plan rests on: see `basis_of`."""
    annotations: Mapping[str, str | None] = {}
    labels: Mapping[str, str | None] = {}
    spec: Mapping[str, object] = {}

    @classmethod
    def of_card(
        cls,
        card: GPUDevice,
        *,
        annotations: Mapping[str, str | None] | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> Self:
        return cls(
            target=Target.CARD,
            name=card.name,
            resource_version=card.metadata.resource_version,
            basis=basis_of(card),
            annotations={str(key): value for key, value in (annotations or {}).items()},
            labels={str(key): value for key, value in (labels or {}).items()},
        )

    @classmethod
    def of_pool(
        cls,
        pool: GPUPool,
        *,
        annotations: Mapping[str, str | None] | None = None,
        spec: Mapping[str, object] | None = None,
    ) -> Self:
        return cls(
            target=Target.POOL,
            name=pool.name,
            resource_version=pool.metadata.resource_version,
            basis=basis_of(pool),
            annotations={str(key): value for key, value in (annotations or {}).items()},
            spec=spec or {},
        )

    @property
    def body(self) -> dict[str, object]:
        """The merge patch."""
        metadata = {key: dict(value) for key in ("annotations", "labels") if (value := getattr(self, key))}
        return {**({"metadata": metadata} if metadata else {}), **({"spec": dict(self.spec)} if self.spec else {})}


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that was asked for and is not done."""

    name: str
    sentence: str
    """Why, and what to do."""
    absent: bool = False
    """Whether there is no such object."""


class CardChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A card that ends elsewhere because of the plan."""

    card: str
    node: str
    product: str | None = None
    before: str | None = None
    """The pool that it is in, or is about to be."""
    after: str | None = None
    """The pool that it ends in."""
    reason: str | None = None
    """In one word why it ends in none, or what it waits for."""
    because: str | None = None
    """The same as a sentence."""
    held_by: tuple[str, ...] = ()
    """Pods that have it, as namespace/pod: it leaves its pool when they have ended."""


class UnitChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The units of a resource, all in all, before and after."""

    pool: str
    resource: str
    before: int
    after: int


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is about to be done."""

    command: str
    """The command line that does the same."""
    edits: tuple[Edit, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Objects that are as they should be already."""
    cards: tuple[CardChange, ...] = ()
    units: tuple[UnitChange, ...] = ()
    notes: tuple[str, ...] = ()


def basis_of(found: Object) -> str:
    """What plans rest on, as a digest: another version of the object with the same one leads to the same plan. An agent
    writes readings and users into cards all the time, and these change nothing about it."""
    metadata = found.metadata
    parts: list[object] = [metadata.uid, metadata.annotations, metadata.labels, metadata.deletion_timestamp]
    if isinstance(found, GPUDevice):
        status = found.status
        conditions = [(each.type, each.status, each.reason) for each in status.conditions]
        parts += [status.state, status.pool_ref, status.hardware, status.burn_in, conditions]
    elif isinstance(found, GPUPool):
        parts += [found.spec, found.status.allocation]
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]


def command_line(action: str, *words: str, **options: str | Iterable[str] | bool | None) -> str:
    """`kubectl gpu …` with its words and options, as a shell takes it."""
    given = ["kubectl", "gpu", action, *words]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            given.append(option)
        elif isinstance(value, str):
            given += [option, value]
        elif value:
            given += [part for each in value for part in (option, each)]
    return shlex.join(given)
