"""The series of a card: its own, those of each MIG instance, and those of each pod that shares it.

What the whole card measures has one series: on a card in MIG mode only the samples of an instance have the instance's
labels. Pods that share a card in time slices each get its samples, but memory and utilisation are those of the pod's
own processes; if these cannot be attributed, they are left out, since copies would be counted twice.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpu_control_plane.agent.backends.interface import Details, Instance, Process
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.exporter.catalogue import XID_COUNT
from gpu_control_plane.agent.exporter.exposition import Series, label_text
from gpu_control_plane.agent.exporter.processes import ContainerName, Owner
from gpu_control_plane.agent.exporter.xids import Reports
from gpu_control_plane.agent.vendors.registry import support_of
from gpu_control_plane.api.gpudevice import Hardware, User


class LabelledCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card with its labels, as text, since they are the same in every scrape."""

    address: str
    uuid: str | None
    labels: str
    instances: tuple[Instance, ...] = ()


class CardReadings(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one card for a scrape."""

    samples: Mapping[str, float]
    instances: Mapping[str, Mapping[str, float]] = {}
    """By the instance's UUID."""
    processes: Sequence[Process] | None = None
    """Read only if several containers share the card; None if they could not be read."""


def labelled_card(
    card: Hardware, details: Details, instances: tuple[Instance, ...], *, hostname: str, driver_version: str
) -> LabelledCard:
    """The card with dcgm-exporter's labels."""
    labels = {
        "gpu": str(details.index),
        "UUID": card.uuid or "",
        "pci_bus_id": bus_id(card.pci.address),
        "device": support_of(card.vendor).device_name(details),
        "modelName": card.product,
        "Hostname": hostname,
        "DCGM_FI_DRIVER_VERSION": driver_version,
    }
    return LabelledCard(address=card.pci.address, uuid=card.uuid, labels=label_text(labels), instances=instances)


def bus_id(address: str) -> str:
    """`0000:3b:00.0` as NVML and DCGM write it: with a domain of eight digits, in upper case."""
    domain, _, rest = address.partition(":")
    return f"{domain:0>8}:{rest}".upper()


def series(
    card: LabelledCard,
    readings: CardReadings,
    users: Mapping[str, Sequence[User]],
    reports: Reports | None,
    owner: Owner,
) -> Iterator[Series]:
    """All series of one card. `users` are by the address of the card, or the UUID of the instance, that they hold."""
    samples = readings.samples
    if reports is not None:
        samples = {**samples, Measure.XID_ERRORS: reports.last}
        for code, count in sorted(reports.counts.items()):
            yield Series(f'{card.labels},xid="{code}"', {XID_COUNT: count})
    yield from _of_users(card.labels, samples, _names(users.get(card.address, ())), readings.processes, owner)
    for instance in card.instances:
        labels = f'{card.labels},GPU_I_PROFILE="{instance.profile}",GPU_I_ID="{instance.gpu_instance}"'
        here = readings.processes and [one for one in readings.processes if one.instance == instance.uuid]
        found = readings.instances.get(instance.uuid, {})
        yield from _of_users(labels, found, _names(users.get(instance.uuid, ())), here, owner)


def shared(card: LabelledCard, users: Mapping[str, Sequence[User]]) -> bool:
    """Whether several containers share the card or one of its instances."""
    holders = (card.address, *(instance.uuid for instance in card.instances))
    return any(len(_names(users.get(holder, ()))) > 1 for holder in holders)


def _names(users: Sequence[User]) -> list[ContainerName]:
    return list(dict.fromkeys(ContainerName(user.namespace, user.pod, user.container) for user in users))


def _of_users(
    labels: str,
    samples: Mapping[str, float],
    names: Sequence[ContainerName],
    processes: Sequence[Process] | None,
    owner: Owner,
) -> Iterator[Series]:
    if not names:
        yield Series(labels, samples)
    elif len(names) == 1:
        yield Series(_with_pod(labels, names[0]), samples)
    else:
        common = {name: value for name, value in samples.items() if name not in (Measure.GPU_UTIL, Measure.FB_USED)}
        owners = [(process, owner(process.pid)) for process in processes or ()]
        complete = processes is not None and all(found is not None for _, found in owners)
        for name in names:
            own = [process for process, found in owners if found == name]
            yield Series(_with_pod(labels, name), common | _own(own, complete=complete))


def _with_pod(labels: str, name: ContainerName) -> str:
    return f"{labels},{label_text({'namespace': name.namespace, 'pod': name.pod, 'container': name.container})}"


def _own(processes: Sequence[Process], *, complete: bool) -> dict[str, float]:
    """What a container's own processes use. That it has none is certain only if all processes are attributed."""
    if not processes:
        return {Measure.GPU_UTIL: 0, Measure.FB_USED: 0} if complete else {}
    memory = [process.memory_mib for process in processes if process.memory_mib is not None]
    busy = [process.utilisation for process in processes if process.utilisation is not None]
    used: dict[str, float] = {}
    if busy:
        used[Measure.GPU_UTIL] = sum(busy)
    if memory:
        used[Measure.FB_USED] = sum(memory)
    return used
