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
from gpu_control_plane.api.names import Annotation, NodeCondition
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.backup.file import Backup, SavedCard, SavedObject, card_faults, faults
from gpu_control_plane.doctor.scrubbing import scrub_text
from gpu_control_plane.kube.client import Client
from gpu_control_plane.kube.conditions import is_true
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
    backup = Backup(
        cluster=cluster,
        created_at=now.replace(microsecond=0),
        release=__version__,
        pools=tuple(_pool(each) for each in sorted(decisions.fleet.pools.values(), key=by_age) if not each.deleting),
        cluster_policies=_software(decisions.policies, StoredClusterPolicy, left_out),
        nvidia_drivers=_software(decisions.policies, StoredNVIDIADriver, left_out),
        cards=_cards(decisions, left_out),
        left_out=(),
    )
    for fault in faults(backup):
        raise IncompleteBackup(f"No file that could be restored can be made of this cluster: {fault}")
    return msgspec.structs.replace(backup, left_out=tuple(left_out))


def by_belief(fleet: Fleet) -> list[GPUDevice]:
    """The cards, of several with one UUID first the one whose node is believed, as inventory believes them: a machine
    that joined again under another name leaves its old node, with the same cards, behind."""

    def order(card: GPUDevice) -> tuple[bool, bool, bool, float, str, str]:
        name, created = card.spec.node_name, card.metadata.creation_timestamp
        node, state = fleet.nodes.get(name), fleet.states.get(name)
        return (
            node is None,
            node is None or not node.ready,
            state is None or not is_true(state.status.conditions, NodeCondition.INVENTORY_COMPLETE),
            created.timestamp() if created is not None else 0.0,
            name,
            card.spec.pci_address,
        )

    return sorted(fleet.cards.values(), key=order)


def _cards(decisions: Decisions, left_out: list[str]) -> tuple[SavedCard, ...]:
    """Each card once, and one card at each address, as the file has to have them. What is lost by that is named: not
    what was decided alike, and no GPUApproval about a card of which something was decided since, which inventory drops,
    too."""
    kept: dict[str, SavedCard] = {}

    def keep(card: SavedCard, name: str, *, overruled: bool = False) -> None:
        other = kept.get(card.uuid) or kept.get(str(card))
        if (fault := next(iter(card_faults(card)), None)) is not None:
            left_out.append(f"{name} is not in the backup: {fault}")
        elif other is None:
            kept[card.uuid] = kept[str(card)] = card
        elif (other.uuid, other.node) != (card.uuid, card.node) or not (
            overruled or _decision(other) == _decision(card)
        ):
            left_out.append(
                f"{name} is not in the backup, since {other.uuid} at {other} is: a card is kept once, and one card at "
                "an address."
            )

    for device in by_belief(decisions.fleet):
        if _is_decided(device) and (card := _saved(device, left_out)) is not None:
            keep(card, f"GPUDevice {device.name}")
    joined = set(kept)
    for approval in sorted(
        decisions.approvals, key=lambda each: (each.spec.node_name, each.spec.pci_address, each.name)
    ):
        if not approval.deleting:
            card = _awaited(approval)
            keep(card, f"GPUApproval {approval.name}", overruled=card.uuid in joined)
    return tuple(sorted(set(kept.values()), key=lambda card: (card.node, card.address)))


def _decision(card: SavedCard) -> tuple[str | None, str | None, bool]:
    return card.pool, card.hold, card.ignore


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
