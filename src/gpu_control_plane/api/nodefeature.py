"""What an agent publishes about its node, in the form of Node Feature Discovery's NodeFeature.

The agent writes one for each node under feature names of our own, with NFD or without it; `inventory` reads it. In
clusters without NFD a discovery of our own writes another, which only has the cards on the PCI bus.
All values are strings, as NFD wants them; `Hardware` and `NodeFacts` are their typed form, and this module is the
only place that knows how one becomes the other.
"""

from typing import ClassVar, Final

import msgspec

from gpu_control_plane.api.gpudevice import PCI, Hardware
from gpu_control_plane.api.gpunodestate import AgentFunctions, Driver, Monitoring, Toolkit
from gpu_control_plane.api.shapes import Part
from gpu_control_plane.kube.objects import Object, Resource

NODE_LABEL: Final = "nfd.node.kubernetes.io/node-name"
CARDS: Final = "gpu.card"
"""The instance feature: one element for each card."""
NODE: Final = "gpu.node"
"""The attribute feature: facts about the node as a whole."""
BUS: Final = "gpu.bus"
"""The instance feature of agents and of discovery: one element for each card that the PCI bus shows."""


class Element(msgspec.Struct, frozen=True):
    attributes: dict[str, str] = {}


class Instances(msgspec.Struct, frozen=True):
    elements: tuple[Element, ...] = ()


class Attributes(msgspec.Struct, frozen=True):
    elements: dict[str, str] = {}


class Features(msgspec.Struct, frozen=True):
    attributes: dict[str, Attributes] = {}
    instances: dict[str, Instances] = {}


class NodeFeatureSpec(msgspec.Struct, frozen=True):
    features: Features = Features()


class NodeFeature(Object, frozen=True):
    resource: ClassVar[Resource] = Resource("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature", "nodefeatures")

    spec: NodeFeatureSpec = NodeFeatureSpec()


def feature_name(node: str) -> str:
    """The name of the object an agent publishes for its node."""
    return f"gpu-control-plane-{node}"


def discovery_name(node: str) -> str:
    """The name of the object that discovery publishes for a node."""
    return f"gpu-discovery-{node}"


class NodeFacts(Part, frozen=True, kw_only=True):
    """What an agent knows about its node as a whole."""

    bus_cards: int
    """Cards the PCI bus shows; more than are reported means that the inventory is incomplete."""
    bus: tuple[PCI, ...] | None = None
    """Each of them with its address; None where the kernel does not show the bus to the agent."""
    boot_id: str = ""
    agent_version: str = ""
    driver: Driver | None = None
    toolkit: Toolkit | None = None
    monitoring: Monitoring | None = None
    agent: AgentFunctions | None = None
    """What the agent does on the node; None from an agent of an older release."""


def node_feature(node: str, facts: NodeFacts, cards: tuple[Hardware, ...]) -> NodeFeatureSpec:
    """What the agent of `node` publishes: cards in the order of their addresses, so that equal facts are equal."""
    ordered = sorted(cards, key=lambda card: card.pci.address)
    about = msgspec.to_builtins(msgspec.structs.replace(facts, bus=None))
    instances = {CARDS: Instances(elements=tuple(Element(attributes=_card(card)) for card in ordered))}
    if facts.bus is not None:
        instances[BUS] = _bus(facts.bus)
    return NodeFeatureSpec(
        features=Features(attributes={NODE: Attributes(elements={"node": node, **_flat(about)})}, instances=instances)
    )


def bus_feature(cards: tuple[PCI, ...]) -> NodeFeatureSpec:
    """What discovery publishes: cards in the order of their addresses, so that equal facts are equal."""
    return NodeFeatureSpec(features=Features(instances={BUS: _bus(cards)}))


def read_bus(feature: NodeFeature) -> tuple[PCI, ...]:
    """The cards on the PCI bus; `ValueError` with the reason when they are missing or make no sense."""
    found = feature.spec.features.instances.get(BUS)
    if found is None:
        raise ValueError(f"there is no feature {BUS} in it")
    return tuple(_convert(_deep(element.attributes), PCI) for element in found.elements)


def read_facts(feature: NodeFeature) -> NodeFacts:
    """The facts of a NodeFeature; `ValueError` with the reason when they make no sense."""
    elements = feature.spec.features.attributes.get(NODE, Attributes()).elements
    facts = _convert(_deep(elements), NodeFacts)
    bus = read_bus(feature) if BUS in feature.spec.features.instances else None
    return msgspec.structs.replace(facts, bus=bus)


def read_cards(feature: NodeFeature) -> tuple[Hardware, ...]:
    """The cards of a NodeFeature; `ValueError` with the reason when they make no sense."""
    elements = feature.spec.features.instances.get(CARDS, Instances()).elements
    return tuple(_hardware(element.attributes) for element in elements)


def _bus(cards: tuple[PCI, ...]) -> Instances:
    ordered = sorted(cards, key=lambda card: card.address)
    return Instances(elements=tuple(Element(attributes=_flat(msgspec.to_builtins(card))) for card in ordered))


def _card(card: Hardware) -> dict[str, str]:
    facts = msgspec.to_builtins(card)
    facts["nvlinkPeers"] = ",".join(card.nvlink_peers)
    return _flat(facts)


def _hardware(attributes: dict[str, str]) -> Hardware:
    facts = _deep(attributes)
    facts["nvlinkPeers"] = [peer for peer in str(facts.get("nvlinkPeers", "")).split(",") if peer]
    return _convert(facts, Hardware)


def _flat(facts: dict[str, object], prefix: str = "") -> dict[str, str]:
    """Nested facts as dotted names: `{"pci": {"vendor": "10de"}}` becomes `{"pci.vendor": "10de"}`."""
    flat: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        elif value is not None and value != "":
            flat[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


def _deep(flat: dict[str, str]) -> dict[str, object]:
    facts: dict[str, object] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        inner = facts
        for part in path:
            deeper = inner.setdefault(part, {})
            if not isinstance(deeper, dict):
                raise ValueError(f"{name} and {part} exclude each other")  # noqa: TRY004 - it is the value that is wrong
            inner = deeper
        inner[last] = value
    return facts


def _convert[T](facts: dict[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert(facts, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
