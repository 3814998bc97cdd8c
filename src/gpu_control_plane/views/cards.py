"""Cards as rows: what each is, where it stands, who holds it and whether it computes."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.names import Annotation, DeviceCondition
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.conditions import find
from gpu_control_plane.views.loads import Load, load_of


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that has units of a card."""

    namespace: str
    pod: str
    units: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"


class Readings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a card last showed. Written when it becomes busy, idle, hot or faulty; metrics have every number."""

    at: datetime
    utilisation: int | None
    temperature: int | None
    power: int | None
    memory_used_mib: int | None = msgspec.field(name="memoryUsedMiB")


class CardRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A card. Fields are added, never renamed or removed."""

    name: str
    node: str
    address: str
    vendor: str | None
    product: str | None
    uuid: str | None
    memory_mib: int | None = msgspec.field(name="memoryMiB")
    state: DeviceState | None
    pool: str | None
    approved_for: str | None
    """The pool that a person has approved it for."""
    reason: str | None
    """Why it is in no pool, in one word."""
    message: str | None
    healthy: bool | None
    """None while its agent has not said."""
    fault: str | None
    """What is wrong with it."""
    ignored: bool
    held_back: str | None
    """Why automatic approval is kept away from it."""
    load: Load
    users: tuple[Holder, ...]
    readings: Readings | None
    created: datetime | None


class CardFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which cards to show; the API server does the choosing."""

    pool: str | None = None
    node: str | None = None
    state: str | None = None
    pending: bool = False
    """Only cards that are in no pool."""
    labels: str | None = None

    @property
    def selection(self) -> Selection:
        wanted = {
            "status.poolRef.name": "" if self.pending else self.pool,
            "spec.nodeName": self.node,
            "status.state": self.state,
        }
        fields = ",".join(f"{field}={value}" for field, value in wanted.items() if value is not None)
        return Selection(labels=self.labels, fields=fields or None)


def card_rows(cards: Iterable[GPUDevice]) -> list[CardRow]:
    """The cards by node and address."""
    return [card_row(card) for card in sorted(cards, key=lambda card: (card.spec.node_name, card.spec.pci_address))]


def card_row(card: GPUDevice) -> CardRow:
    status = card.status
    hardware = status.hardware
    healthy = find(status.conditions, DeviceCondition.HEALTHY)
    annotations = card.metadata.annotations
    return CardRow(
        name=card.name,
        node=card.spec.node_name,
        address=card.spec.pci_address,
        vendor=hardware.vendor if hardware is not None else None,
        product=hardware.product if hardware is not None else None,
        uuid=hardware.uuid if hardware is not None else None,
        memory_mib=hardware.memory_mib if hardware is not None else None,
        state=status.state,
        pool=status.pool_ref.name if status.pool_ref is not None else None,
        approved_for=annotations.get(Annotation.ASSIGNMENT),
        reason=status.pending_reason,
        message=status.message,
        healthy=healthy.status == "True" if healthy is not None else None,
        fault=healthy.message or healthy.reason if healthy is not None and healthy.status != "True" else None,
        ignored=card.ignored,
        held_back=annotations.get(Annotation.HOLD),
        load=load_of(card),
        users=holders(card),
        readings=readings_of(card),
        created=card.metadata.creation_timestamp,
    )


def holders(card: GPUDevice) -> tuple[Holder, ...]:
    """The pods that have units of the card, each once."""
    units: dict[tuple[str, str], int] = {}
    for user in card.status.used_by:
        pod = user.namespace, user.pod
        units[pod] = units.get(pod, 0) + user.units
    return tuple(Holder(namespace=namespace, pod=pod, units=held) for (namespace, pod), held in sorted(units.items()))


def readings_of(card: GPUDevice) -> Readings | None:
    read = card.status.telemetry
    if read is None:
        return None
    return Readings(
        at=read.at,
        utilisation=read.utilisation,
        temperature=read.temperature,
        power=read.power,
        memory_used_mib=read.memory_used,
    )
