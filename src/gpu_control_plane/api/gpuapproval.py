"""GPUApproval: what a person has decided about a card before the card is there.

`kubectl gpu restore` writes one for each card that has not joined the cluster yet. Inventory follows it when the card
appears, before any pool can see the card, and deletes it then. So nobody has to wait for machines.
"""

from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.gpudevice import MAX_MESSAGE
from gpu_control_plane.api.names import GROUP, VERSION, Annotation, Label
from gpu_control_plane.api.shapes import CARD_UUID, NodeName, Part, PCIAddress, PoolName, immutable
from gpu_control_plane.kube.crd import AGE, Column, Definition
from gpu_control_plane.kube.fields import Rule, about
from gpu_control_plane.kube.objects import Object, Resource


class ApprovalSpec(Part, frozen=True, kw_only=True):
    """Which card, and what was decided."""

    node_name: Annotated[NodeName, about("Node that the card will be in.", immutable("spec.nodeName"))]
    pci_address: Annotated[
        PCIAddress, about("PCI address at which it is expected; it may turn up at another one of the node.")
    ]
    uuid: Annotated[
        str,
        about(
            "The card's own identity. Another card at the address is not approved.",
            pattern=CARD_UUID,
            minLength=1,
            maxLength=96,
        ),
    ]
    product: Annotated[str | None, about("Model of the card, for people who read this.", maxLength=128)] = None
    pool: Annotated[
        PoolName | None, about(f"Pool that the card may join: becomes the annotation {Annotation.ASSIGNMENT}.")
    ] = None
    hold: Annotated[
        str | None,
        about(
            f"Keeps automatic approval away from the card, and says why: becomes the annotation {Annotation.HOLD}.",
            minLength=1,
            maxLength=512,
        ),
    ] = None
    ignore: Annotated[bool, about(f"Whether the card stays out of service: becomes the label {Label.IGNORE}.")] = False
    reason: Annotated[str | None, about("Why, for the card's history.", maxLength=512)] = None


class ApprovalStatus(Part, frozen=True, kw_only=True):
    """What became of it so far."""

    message: Annotated[str | None, about("Why it has not been followed, and what to do.", maxLength=MAX_MESSAGE)] = None


class GPUApproval(Object, frozen=True, kw_only=True):
    """A decision of a person about a card that is not there yet: followed, and deleted, when the card appears."""

    resource: ClassVar[Resource] = Resource(
        group=GROUP, version=VERSION, kind="GPUApproval", plural="gpuapprovals", namespaced=False
    )
    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.spec.pool) || has(self.spec.hold) || (has(self.spec.ignore) && self.spec.ignore)",
            "say what was decided about the card: spec.pool, spec.hold or spec.ignore",
        ),
    )

    spec: Annotated[ApprovalSpec, about("Which card, and what was decided.")]
    status: Annotated[ApprovalStatus, about("What became of it so far.")] = ApprovalStatus()


DEFINITION: Final = Definition(
    kind=GPUApproval,
    short_names=("gapp",),
    categories=("gpus",),
    columns=(
        Column("Node", ".spec.nodeName", description="Node that the card will be in"),
        Column("Address", ".spec.pciAddress", description="PCI address at which it is expected"),
        Column("Pool", ".spec.pool", description="Pool that it may join"),
        Column("Message", ".status.message", description="Why it has not been followed"),
        Column("UUID", ".spec.uuid", description="The card's own identity", priority=1),
        Column("Product", ".spec.product", description="Model of the card", priority=1),
        AGE,
    ),
    selectable=(".spec.nodeName",),
)
