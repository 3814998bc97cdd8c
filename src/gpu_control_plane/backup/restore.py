"""What a restore writes, as a plan: what it leads to, what waits for its machine, and what is left alone. Pure.

A card is the one with the same UUID on the same node, or it is not there yet. What has been decided in the cluster
since stands, unless whoever restores says otherwise; a card that is in another node by now is never given out twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from gpu_control_plane.actions.forecast import Forecast, card_change, with_edits, with_pools
from gpu_control_plane.actions.plan import Edit, Plan, Refusal, command_line
from gpu_control_plane.actions.preview import as_written
from gpu_control_plane.api.gpuapproval import ApprovalSpec, GPUApproval
from gpu_control_plane.api.gpudevice import GPUDevice
from gpu_control_plane.api.gpupool import GPUPool, PoolSpec
from gpu_control_plane.api.identity import inventory_id
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy, StoredNVIDIADriver
from gpu_control_plane.backup.collect import Decisions, by_belief
from gpu_control_plane.backup.file import Backup, SavedCard, SavedObject
from gpu_control_plane.kube.objects import Object, ObjectMeta
from gpu_control_plane.kube.sentences import counted, counted_are, one_line
from gpu_control_plane.pools.snapshot import claim_of
from gpu_control_plane.views.fleet import Fleet


class Kind(StrEnum):
    """What a restore writes beside cards."""

    POOL = "GPUPool"
    CLUSTER_POLICY = "ClusterPolicy"
    NVIDIA_DRIVER = "NVIDIADriver"
    APPROVAL = "GPUApproval"

    @property
    def type(self) -> type[Object]:
        return _TYPES[self]


_TYPES: Final[Mapping[str, type[Object]]] = {
    "GPUPool": GPUPool,
    "ClusterPolicy": StoredClusterPolicy,
    "NVIDIADriver": StoredNVIDIADriver,
    "GPUApproval": GPUApproval,
}


class Write(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object to create, or whose spec to replace."""

    kind: Kind
    name: str
    spec: Mapping[str, object]
    before: Mapping[str, object] | None = None
    """The spec that it has; None where there is no such object."""
    resource_version: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is about to be done."""

    cards: Plan
    """The cards that are there, and everything that is left alone."""
    awaited: tuple[Write, ...] = ()
    """GPUApprovals, of cards that are not there yet."""
    objects: tuple[Write, ...] = ()
    """Pools and software, in the order in which they are written: after the cards, since a pool that approves cards by
    itself would take those that are meant for others, or are held."""


def plan_restore(backup: Backup, decisions: Decisions, *, file: str, overwrite: bool = False) -> RestorePlan:
    """Bring the backup into a cluster that has these objects."""
    planning = _Planning(backup, decisions, overwrite=overwrite)
    objects = tuple(planning.objects())
    edits, awaited = planning.cards()
    fleet = decisions.fleet
    pools = (_as_pool(fleet, each) for each in objects if each.kind is Kind.POOL)
    changed = with_edits(with_pools(fleet, pools), edits)
    forecast = Forecast(fleet, changed, {card.spec.node_name for card in fleet.cards.values()})
    found = forecast.consequences()
    moved = {change.card for change in found.cards}
    waiting = (
        card_change(fleet.cards[edit.name], forecast.before[edit.name], forecast.after[edit.name])
        for edit in edits
        if edit.name not in moved and edit.annotations.get(Annotation.ASSIGNMENT) and edit.name in forecast.after
    )
    return RestorePlan(
        cards=Plan(
            command=command_line("restore", file, overwrite=overwrite),
            edits=edits,
            refusals=tuple(planning.refusals),
            unchanged=tuple(planning.unchanged),
            cards=(*found.cards, *waiting),
            units=found.units,
            notes=(*_notes(awaited), *map(one_line, backup.left_out)),
        ),
        awaited=awaited,
        objects=objects,
    )


class _Planning:
    """Compares a backup with a cluster, and collects what is left alone on the way."""

    def __init__(self, backup: Backup, decisions: Decisions, *, overwrite: bool) -> None:
        self._backup = backup
        self._fleet = decisions.fleet
        self._policies = decisions.policies
        self._overwrite = overwrite
        self._approvals = _Approvals(each for each in decisions.approvals if not each.deleting)
        here = [card for card in reversed(by_belief(decisions.fleet)) if not card.deleting]
        self._by_uuid = {uuid: card for card in here if (uuid := _uuid(card)) is not None}
        self.refusals: list[Refusal] = []
        self.unchanged: list[str] = []

    def objects(self) -> Iterable[Write]:
        """Pools and software that differ."""
        yield from self._differing(Kind.CLUSTER_POLICY, self._backup.cluster_policies, self._policies)
        yield from self._differing(Kind.NVIDIA_DRIVER, self._backup.nvidia_drivers, self._policies)
        saved = [SavedObject(name=each.name, spec=_canonical(each.spec)) for each in self._backup.pools]
        yield from self._differing(Kind.POOL, saved, self._fleet.pools.values())

    def cards(self) -> tuple[tuple[Edit, ...], tuple[Write, ...]]:
        """Cards that are there, as edits; and those that are not, as GPUApprovals."""
        edits: list[Edit] = []
        awaited: list[Write] = []
        for saved in self._backup.cards:
            place = inventory_id(saved.node, saved.address)
            card = self._by_uuid.get(saved.uuid)
            if card is not None and card.spec.node_name != saved.node:
                again = command_line("approve", card.name, pool=saved.pool) if saved.pool else "decide about it there"
                self._refuse(place, f"its card is in {card.spec.node_name} now, and was not touched: {again}")
            elif card is not None:
                edits += self._edit(card, saved)
            elif (other := self._another(place, saved)) is not None:
                self._refuse(place, f"another card is there: {other}, and not {saved.uuid}; it was not touched")
            else:
                awaited += self._awaited(place, saved)
        return tuple(edits), tuple(awaited)

    def _differing(self, kind: Kind, saved: Iterable[SavedObject], there: Iterable[Object]) -> Iterable[Write]:
        held = {each.name: each for each in there if isinstance(each, kind.type)}
        for each in saved:
            write = Write(kind=kind, name=each.name, spec=each.spec)
            if (found := held.get(each.name)) is None:
                yield write
            elif found.deleting:
                self._refuse(str(write), "it is being deleted: repeat the command when it is gone")
            elif spec_of(found) == each.spec:
                self.unchanged.append(str(write))
            elif self._overwrite:
                yield _instead(write, found)
            else:
                self._refuse(str(write), "it exists with another spec; to replace that: --overwrite")

    def _edit(self, card: GPUDevice, saved: SavedCard) -> Iterable[Edit]:
        annotations = card.metadata.annotations
        now = annotations.get(Annotation.ASSIGNMENT) or claim_of(card)
        clash = _clash(card, now, saved)
        if clash is not None and not self._overwrite:
            self._refuse(card.name, f"{clash}, and {_words(saved)} in the backup; to have that: --overwrite")
            return
        held = annotations.get(Annotation.HOLD)
        wanted: dict[str, str | None] = {
            Annotation.ASSIGNMENT: saved.pool,
            Annotation.HOLD: (held or saved.hold) if saved.hold else None,
        }
        differing = {key: value for key, value in wanted.items() if annotations.get(key) != value}
        if saved.pool is not None and Annotation.ASSIGNMENT in differing:
            differing[Annotation.REASON] = _reason(self._backup, saved)
        labels: dict[str, str | None] = {}
        if card.ignored != saved.ignore:
            labels[Label.IGNORE] = "true" if saved.ignore else None
        if not differing and not labels:
            self.unchanged.append(card.name)
            return
        yield Edit.of_card(card, annotations=differing, labels=labels)

    def _another(self, place: str, saved: SavedCard) -> str | None:
        """The UUID of another card at the address."""
        card = self._fleet.cards.get(place)
        found = _uuid(card) if card is not None and not card.deleting else None
        return found if found != saved.uuid else None

    def _awaited(self, place: str, saved: SavedCard) -> Iterable[Write]:
        spec = ApprovalSpec(
            node_name=saved.node,
            pci_address=saved.address,
            uuid=saved.uuid,
            product=saved.product,
            pool=saved.pool,
            hold=saved.hold,
            ignore=saved.ignore,
            reason=_reason(self._backup, saved),
        )
        write = Write(kind=Kind.APPROVAL, name=place, spec=msgspec.to_builtins(spec))
        held = self._approvals.about(place, spec)
        if not held:
            yield write
            return
        others = [each for each in held if _decision(each.spec) != _decision(spec)]
        write = msgspec.structs.replace(write, name=held[0].name)
        if not others:
            self.unchanged.append(str(write))
        elif len(held) > 1 or held[0].spec.node_name != saved.node:
            names = " ".join(each.name for each in others)
            again = f"`kubectl delete gpuapproval {names}`, and repeat the command"
            self._refuse(place, f"what exists about the card, or its address, says something else: {again}")
        elif self._overwrite:
            yield _instead(write, held[0])
        else:
            self._refuse(str(write), "it exists and says something else; to replace it: --overwrite")

    def _refuse(self, name: str, sentence: str) -> None:
        self.refusals.append(Refusal(name=name, sentence=sentence))


class _Approvals:
    """The GPUApprovals that exist, whatever their names are: people write them by hand as well."""

    def __init__(self, approvals: Iterable[GPUApproval]) -> None:
        self._by_name: dict[str, GPUApproval] = {}
        self._by_uuid: defaultdict[str, list[GPUApproval]] = defaultdict(list)
        self._by_slot: defaultdict[tuple[str, str], list[GPUApproval]] = defaultdict(list)
        for each in approvals:
            self._by_name[each.name] = each
            self._by_uuid[each.spec.uuid].append(each)
            self._by_slot[each.spec.node_name, each.spec.pci_address].append(each)

    def about(self, name: str, spec: ApprovalSpec) -> list[GPUApproval]:
        """Those that one of this name and with this spec would contradict or repeat."""
        named = [self._by_name[name]] if name in self._by_name else []
        found = (*named, *self._by_uuid[spec.uuid], *self._by_slot[spec.node_name, spec.pci_address])
        return sorted({each.name: each for each in found}.values(), key=lambda each: each.name)


def spec_of(found: Object) -> dict[str, object]:
    """The spec of one of these objects, as JSON has it."""
    spec = getattr(found, "spec", None)
    read: dict[str, object] = msgspec.json.decode(spec) if isinstance(spec, msgspec.Raw) else msgspec.to_builtins(spec)
    return read


def _instead(write: Write, found: Object) -> Write:
    version = found.metadata.resource_version
    return msgspec.structs.replace(write, before=spec_of(found), resource_version=version)


def _clash(card: GPUDevice, now: str | None, saved: SavedCard) -> str | None:
    """What has been decided about the card in this cluster and contradicts the backup."""
    if now is not None and now != saved.pool:
        return f"it is in the pool {now}" if claim_of(card) == now else f"it is approved for the pool {now}"
    if card.ignored and not saved.ignore:
        return "it is out of service"
    if card.metadata.annotations.get(Annotation.HOLD) and not saved.hold:
        return "it is held"
    return None


def _words(saved: SavedCard) -> str:
    if saved.pool is not None:
        return f"was in the pool {saved.pool}"
    return "was out of service" if saved.ignore else "was held"


def _reason(backup: Backup, saved: SavedCard) -> str | None:
    return saved.reason or (f"restored from the backup of {backup.created_at:%Y-%m-%d}" if saved.pool else None)


def _decision(spec: ApprovalSpec) -> tuple[object, ...]:
    return spec.node_name, spec.pci_address, spec.uuid, spec.pool, spec.hold, spec.ignore


def _uuid(card: GPUDevice) -> str | None:
    return card.status.hardware.uuid if card.status.hardware is not None else None


def _canonical(spec: Mapping[str, object]) -> dict[str, object]:
    """The spec of a pool as one that was read from a cluster is written."""
    found: dict[str, object] = msgspec.to_builtins(msgspec.convert(spec, PoolSpec))
    return found


def _as_pool(fleet: Fleet, write: Write) -> GPUPool:
    pool = GPUPool(metadata=ObjectMeta(name=write.name), spec=msgspec.convert(write.spec, PoolSpec))
    return as_written(fleet, pool)


def _notes(awaited: Sequence[Write]) -> tuple[str, ...]:
    if not awaited:
        return ()
    nodes = counted(len({each.spec["nodeName"] for each in awaited}), "node")
    cards = counted_are(len(awaited), "card")
    return (f"{cards} not there yet, on {nodes}, and approved when they are: kubectl get gpuapprovals",)
