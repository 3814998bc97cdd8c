"""What Node Feature Discovery counts on the PCI bus of a node, for a second opinion.

Its worker publishes a NodeFeature with the name of the node, in a namespace of its own. Nothing is asked of it: where
it does not run, or may not be read, there is no second opinion.

The API tells nobody who wrote an object, and others may publish NodeFeatures, too, in namespaces of theirs. A word
against the agent keeps cards from being issued, so it counts only from namespaces that no user has: those of the system
and those in which Node Feature Discovery is known to live.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from typing import ClassVar, Final

import msgspec
import structlog

from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFeature
from gpu_control_plane.kube import Key, Object, Resource, Runtime
from gpu_control_plane.kube.dynamic_caches import DynamicCaches

NVIDIA: Final = "10de"
USUAL: Final = frozenset({"node-feature-discovery", "gpu-operator", "nvidia-gpu-operator", "nvidia-network-operator"})
"""Where its chart, and charts that bring it along, put it."""
_SYSTEM: Final = ("kube-", "d8-", "openshift-")
_CLASSES: Final = frozenset({"0300", "0302"})
_FIRST_LOOK: Final = 10.0
"""Seconds to wait for it at the start: deciding without it and then with it would be two answers for one."""
_NAME: Final = "nfd"
_ANY: Final = "any"

_log = structlog.get_logger(component="inventory.nfd")


class Device(msgspec.Struct, frozen=True, gc=False):
    vendor: str = ""
    device: str = ""
    class_: str = msgspec.field(name="class", default="")
    sriov_totalvfs: str = ""
    """How many virtual functions it may have; virtual functions themselves do not say."""

    @property
    def model(self) -> str:
        return f"{self.vendor}:{self.device}"


class Element(msgspec.Struct, frozen=True, gc=False):
    attributes: Device = Device()


class Devices(msgspec.Struct, frozen=True, gc=False):
    """The devices on a bus. Hundreds of others hang on it; only cards are kept."""

    elements: tuple[Element, ...] = ()

    def __post_init__(self) -> None:
        cards = tuple(one for one in self.elements if _is_card(one.attributes))
        msgspec.structs.force_setattr(self, "elements", cards)


class Instances(msgspec.Struct, frozen=True, gc=False):
    pci: Devices | None = msgspec.field(name="pci.device", default=None)


class Features(msgspec.Struct, frozen=True, gc=False):
    instances: Instances = Instances()


class Spec(msgspec.Struct, frozen=True, gc=False):
    features: Features = Features()


class DiscoveredNode(Object, frozen=True):
    """A NodeFeature without anything but its cards."""

    resource: ClassVar[Resource] = NodeFeature.resource

    spec: Spec = Spec()

    @property
    def node(self) -> str | None:
        """The node whose worker published this; None for what others publish about a node."""
        return self.name if self.metadata.labels.get(NODE_LABEL) == self.name else None

    @property
    def counts(self) -> Mapping[str, int] | None:
        """Cards by model, such as `10de:2335`; None where it says nothing about the bus. Virtual functions of a card
        that is shared among virtual machines are listed beside it, and are none."""
        devices = self.spec.features.instances.pci
        if devices is None:
            return None
        cards = [one.attributes for one in devices.elements]
        divisible = {card.model for card in cards if card.sriov_totalvfs}
        return Counter(card.model for card in cards if card.sriov_totalvfs or card.model not in divisible)


def is_trusted(namespace: str, others: Set[str] = frozenset()) -> bool:
    """Whether what is published in this namespace may contradict an agent. `others` are trusted beside the usual."""
    return namespace in USUAL or namespace in others or namespace.startswith(_SYSTEM)


class SecondOpinion:
    """Follows Node Feature Discovery for as long as the process lives."""

    def __init__(self, runtime: Runtime, trusted: Set[str], on_change: Callable[[Key], None]) -> None:
        self._followers = DynamicCaches(runtime.unfenced_client, DiscoveredNode)
        self._trusted = trusted
        self._on_change = on_change
        self._cache = self._followers.follow(_NAME)
        self._cache.index(_NAME, self._nodes_of)
        self._cache.index(_ANY, lambda feature: (_ANY,) if any(self._nodes_of(feature)) else ())
        self._cache.on_change(self._changed)
        self._asked = False
        runtime.service(self._followers.run)

    async def ready(self) -> None:
        """Wait for the first picture, once, and not for long; where it may not be read, hardly at all."""
        if self._asked or self._cache.is_synced:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK):
                await self._cache.synced_or_unavailable()
        self._go_on()

    def _go_on(self) -> None:
        """Nobody waits again; the first of those who waited tells why there is nothing."""
        if not self._asked and not self._cache.is_synced:
            _log.warning("decided without Node Feature Discovery", why=str(self._cache.watch_error or "it is slow"))
        self._asked = True

    def of(self, node: str) -> Mapping[str, int] | None:
        """What it counts on the bus of a node; None where it has no opinion. Of several the first by name speaks."""
        opinions = sorted(self._cache.by_index(_NAME, node), key=lambda one: one.metadata.namespace or "")
        return next((one.counts for one in opinions if one.counts is not None), None)

    def is_awaited(self, node: str) -> bool:
        """Whether it is at work, or may be, and has no opinion on this node: it may be about to have one."""
        at_work = not self._cache.is_synced or self._cache.count(_ANY, _ANY) > 0
        return at_work and self.of(node) is None

    def _nodes_of(self, feature: DiscoveredNode) -> Iterable[str]:
        trusted = is_trusted(feature.metadata.namespace or "", self._trusted)
        return (feature.node,) if feature.node is not None and trusted else ()

    def _changed(self, old: DiscoveredNode | None, new: DiscoveredNode | None) -> None:
        """A NodeFeature changes with many things; only the cards in it matter."""
        if (old.counts if old else None) == (new.counts if new else None):
            return
        for node in {node for one in (old, new) if one is not None for node in self._nodes_of(one)}:
            self._on_change(Key(node))


def _is_card(device: Device) -> bool:
    return device.vendor == NVIDIA and device.class_ in _CLASSES
