"""Which cards a pool may take."""

from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.gpudevice import Vendor
from gpu_control_plane.api.selectors import Selector
from gpu_control_plane.api.shapes import InventoryID, Part
from gpu_control_plane.kube.fields import Rule, about

_CAPABILITY: Final = r"'^[0-9]{1,2}\\.[0-9]$'"
_CAPABILITY_RULE: Final = Rule(
    f"self.matches({_CAPABILITY})",
    "write a compute capability as text with one digit after the point: '8.0', '9.0', '12.1'",
)
_Capability = Annotated[str, about("CUDA compute capability, such as '9.0'.", _CAPABILITY_RULE, maxLength=4)]


class MemoryRange(Part, frozen=True, kw_only=True):
    """Bounds of a card's memory in MiB, both included."""

    min: Annotated[int | None, about("Least memory in MiB.", minimum=0, maximum=2**31 - 1)] = None
    max: Annotated[int | None, about("Most memory in MiB.", minimum=0, maximum=2**31 - 1)] = None

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "memoryMiB.min is above memoryMiB.max, so no card matches",
        ),
    )


class CapabilityRange(Part, frozen=True, kw_only=True):
    """Bounds of a card's compute capability, both included."""

    min: Annotated[_Capability | None, about("Least compute capability.")] = None
    max: Annotated[_Capability | None, about("Highest compute capability.")] = None

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.min) || !has(self.max) || "
            f"!self.min.matches({_CAPABILITY}) || !self.max.matches({_CAPABILITY}) || "
            "double(self.min) <= double(self.max)",
            "computeCapability.min is above computeCapability.max, so no card matches",
        ),
    )


class DeviceCriteria(Part, frozen=True, kw_only=True):
    """Properties of cards."""

    vendors: Annotated[tuple[Vendor, ...], about("Cards made by one of these.", unique=True, maxItems=8)] = ()
    products: Annotated[
        tuple[Annotated[str, about("Name of a model; * stands for any text.", minLength=1, maxLength=128)], ...],
        about(
            "Cards of one of these models, such as 'NVIDIA H200' or '*H100*' (* is any text, ? one character; "
            "upper and lower case are alike).",
            unique=True,
            maxItems=64,
        ),
    ] = ()
    memory_mib: Annotated[MemoryRange | None, about("Cards with so much memory, in MiB.")] = None
    compute_capability: Annotated[CapabilityRange | None, about("Cards with such a CUDA compute capability.")] = None
    mig_capable: Annotated[bool | None, about("Cards that can (true) or cannot (false) be cut into MIG instances.")] = (
        None
    )
    inventory_ids: Annotated[
        tuple[InventoryID, ...],
        about("Exactly these cards, by the names of their GPUDevices.", unique=True, maxItems=512),
    ] = ()


class DeviceSelector(Part, frozen=True, kw_only=True):
    """Which cards may join the pool. An empty selector means every card."""

    node_selector: Annotated[Selector | None, about("Only cards of nodes with these labels.")] = None
    include: Annotated[DeviceCriteria | None, about("Only cards that meet every criterion given here.")] = None
    exclude: Annotated[
        DeviceCriteria | None, about("Never cards that meet any criterion given here, whatever include says.")
    ] = None
    max_devices_per_node: Annotated[
        int | None, about("Most cards the pool takes from one node.", minimum=1, maximum=64)
    ] = None


def compute_capability(text: str) -> tuple[int, int]:
    """A compute capability that compares as numbers do: 10.0 is above 9.0."""
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)
