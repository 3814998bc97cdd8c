"""What the exporter's tests share: a few cards, and the exposition read back by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from gpu_control_plane.agent.backends.interface import Details, Instance
from gpu_control_plane.agent.exporter.series import LabelledCard, labelled_card
from gpu_control_plane.api.gpudevice import PCI, Hardware, User, Vendor

Read = dict[str, list[tuple[dict[str, str], float]]]


def card(index: int = 0, *, instances: tuple[Instance, ...] = (), product: str = "NVIDIA H200") -> LabelledCard:
    address = f"0000:{index + 0x3A:02x}:00.0"
    pci = PCI(vendor="10de", device="2335", class_="0302", address=address)
    hardware = Hardware(vendor=Vendor.NVIDIA, product=product, uuid=f"GPU-{index}", pci=pci)
    details = Details(index=index, minor=index + 4)
    return labelled_card(hardware, details, instances, hostname="node-1", driver_version="580.159.04")


def instance(number: int, profile: str = "1g.18gb") -> Instance:
    return Instance(
        profile=profile, start=number, size=1, uuid=f"MIG-{number}", gpu_instance=number, compute_instance=0
    )


def user(pod: str, container: str = "main") -> User:
    return User(namespace="team-a", pod=pod, container=container, resource="gpu.deckhouse.io/x", units=1)


def read(body: bytes) -> Read:
    """Samples by metric, under the names they were written with."""
    families = text_string_to_metric_families(body.decode())
    return {family.name: [(dict(sample.labels), sample.value) for sample in family.samples] for family in families}
