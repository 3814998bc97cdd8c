"""Makes a backup of a cluster: what people have decided, and nothing that follows from it.

A backup with parts missing would be found out about on the worst of days, so whoever may not read everything gets none.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gpu_control_plane import __version__
from gpu_control_plane.api.gpuapproval import GPUApproval
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool
from gpu_control_plane.api.names import Annotation
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.backup.file import Backup, SavedCard, SavedObject
from gpu_control_plane.doctor.scrubbing import scrub_text
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.errors import KubeError, NotFound
from gpu_control_plane.operator.upgrade_pause import read_policies
from gpu_control_plane.rules.pool_validation import by_age
from gpu_control_plane.views.fleet import Fleet
from gpu_control_plane.views.reading import Part, read_fleet


class IncompleteBackup(KubeError):
    """Not everything may be read; the message says what."""


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster that hold what people have decided."""

    fleet: Fleet
    approvals: Sequence[GPUApproval] = ()
    policies: Sequence[StoredClusterPolicy | StoredNVIDIADriver] = ()


async def read_decisions(client: Client) -> Decisions:
    """Read them; `IncompleteBackup` if some of them may not be read."""
    fleet = await read_fleet(client, {Part.CARDS, Part.STATES, Part.POOLS, Part.NODES})
    if fleet.missing:
        raise IncompleteBackup(" ".join(f"{each.why}." for each in fleet.missing))
    return Decisions(fleet=fleet, approvals=await read_approvals(client), policies=await read_policies(client))


async def read_approvals(client: Client) -> Sequence[GPUApproval]:
    """Those of cards that are not there yet; none where an older release has not installed the kind."""
    try:
        return await client.list(GPUApproval)
    except NotFound:
        return ()


def backup_of(decisions: Decisions, *, cluster: str, now: datetime) -> Backup:
    """The backup of these objects, in an order that does not depend on how they were read."""
    left_out: list[str] = []
    decided = [card for card in _in_order(decisions.fleet.cards.values()) if _is_decided(card)]
    saved = [card for device in decided if (card := _saved(device, left_out)) is not None]
    known = {card.uuid for card in saved} | {(card.node, card.address) for card in saved}
    awaited = [
        _awaited(each)
        for each in sorted(decisions.approvals, key=lambda each: (each.spec.node_name, each.spec.pci_address))
        if known.isdisjoint({each.spec.uuid, (each.spec.node_name, each.spec.pci_address)})
    ]
    return Backup(
        cluster=cluster,
        created_at=now.replace(microsecond=0),
        release=__version__,
        pools=tuple(_pool(each) for each in sorted(decisions.fleet.pools.values(), key=by_age) if not each.deleting),
        cluster_policies=_software(decisions.policies, StoredClusterPolicy, left_out),
        nvidia_drivers=_software(decisions.policies, StoredNVIDIADriver, left_out),
        cards=tuple(sorted((*saved, *awaited), key=lambda card: (card.node, card.address))),
        left_out=tuple(left_out),
    )


def _in_order(cards: Iterable[GPUDevice]) -> list[GPUDevice]:
    return sorted(cards, key=lambda card: (card.spec.node_name, card.spec.pci_address))


def _is_decided(card: GPUDevice) -> bool:
    annotations = card.metadata.annotations
    return bool(annotations.get(Annotation.ASSIGNMENT)) or bool(annotations.get(Annotation.HOLD)) or card.ignored


def _saved(card: GPUDevice, left_out: list[str]) -> SavedCard | None:
    hardware = card.status.hardware
    if hardware is None or hardware.uuid is None:
        left_out.append(
            f"{card.name} has told no UUID, so that nothing says which card it is: decide about it by hand."
        )
        return None
    annotations = card.metadata.annotations
    pool = annotations.get(Annotation.ASSIGNMENT) or None
    return SavedCard(
        node=card.spec.node_name,
        address=card.spec.pci_address,
        uuid=hardware.uuid,
        product=hardware.product,
        pool=pool,
        hold=annotations.get(Annotation.HOLD) or None,
        ignore=card.ignored,
        reason=annotations.get(Annotation.REASON) or _reason_told(card, pool),
        approved_by=annotations.get(Annotation.APPROVED_BY) or None,
    )


def _reason_told(card: GPUDevice, pool: str | None) -> str | None:
    """Why the card is in its pool: the controller moves that from the annotation into the history."""
    if pool is None:
        return None
    return next((change.why for change in card.status.history if change.what == f"Assigned to {pool}"), None)


def _awaited(approval: GPUApproval) -> SavedCard:
    """A card of an earlier restore whose machine has not joined yet."""
    spec = approval.spec
    return SavedCard(
        node=spec.node_name,
        address=spec.pci_address,
        uuid=spec.uuid,
        product=spec.product,
        pool=spec.pool,
        hold=spec.hold,
        ignore=spec.ignore,
        reason=spec.reason,
    )


def _pool(pool: GPUPool) -> SavedObject:
    return SavedObject(name=pool.name, spec=msgspec.to_builtins(pool.spec))


def _software(
    policies: Iterable[StoredClusterPolicy | StoredNVIDIADriver],
    kind: type[StoredClusterPolicy] | type[StoredNVIDIADriver],
    left_out: list[str],
) -> tuple[SavedObject, ...]:
    found = []
    for each in sorted((each for each in policies if isinstance(each, kind)), key=lambda each: each.name):
        spec = msgspec.json.decode(each.spec, type=dict[str, object])
        path = f"{kind.resource.kind} {each.name}: spec"
        found.append(SavedObject(name=each.name, spec=_without_secrets(spec, path, left_out)))
    return tuple(found)


def _without_secrets(item: Any, path: str, left_out: list[str]) -> Any:
    """The spec without values that look like credentials; what is missing is told."""
    if isinstance(item, dict):
        places = {key: (f"{path}.{key}", value) for key, value in item.items()}
        return {
            key: _without_secrets(value, at, left_out)
            for key, (at, value) in places.items()
            if _kept(at, value, left_out)
        }
    if isinstance(item, list):
        numbered = [(f"{path}[{_label(index, value)}]", value) for index, value in enumerate(item)]
        return [_without_secrets(value, at, left_out) for at, value in numbered if _kept(at, value, left_out)]
    return item


def _kept(path: str, value: object, left_out: list[str]) -> bool:
    if not _is_secret(value):
        return True
    left_out.append(f"{path} looks like a secret and is not in the backup: set it by hand.")
    return False


def _is_secret(value: object) -> bool:
    """Whether it is a credential, or an environment variable whose name or value says that it is one."""
    if isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("value"), str):
        text = f"{value['name']}={value['value']}"
        return scrub_text(text) != text
    return isinstance(value, str) and scrub_text(value) != value


def _label(index: int, value: object) -> str:
    named = value.get("name") if isinstance(value, dict) else None
    return named if isinstance(named, str) else str(index)
