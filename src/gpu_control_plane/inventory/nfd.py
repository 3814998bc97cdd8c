"""What Node Feature Discovery (NFD) counts on the PCI bus of a node, to confirm or contradict the agent.

NFD's worker publishes a NodeFeature with the name of the node, in a namespace of its own. Where NFD does not run, or
may not be read, the agent's own reading of the bus stands alone.

The API does not say who wrote an object, and users may create NodeFeatures in their namespaces. A count that
contradicts the agent keeps cards from being issued, so it is read only from namespaces that no user has: those of the
system and those in which NFD is usually installed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar, Final

import msgspec
import structlog

from gpu_control_plane.api.nodefeature import NODE_LABEL, NodeFeature
from gpu_control_plane.kube import Key, Object, Resource, Runtime
from gpu_control_plane.kube.dynamic_caches import DynamicCaches

NVIDIA: Final = "10de"
USUAL_NAMESPACES: Final = frozenset(
    {"node-feature-discovery", "gpu-operator", "nvidia-gpu-operator", "nvidia-network-operator"}
)
"""Where NFD's chart, and charts that contain it, install it."""
_SYSTEM_PREFIXES: Final = ("kube-", "d8-", "openshift-")
_CLASSES: Final = frozenset({"0300", "0302"})
_NAME: Final = "nfd"
_ANY: Final = "any"

_log = structlog.get_logger(component="inventory.nfd")


class Device(msgspec.Struct, frozen=True, gc=False):
    vendor: str = ""
    device: str = ""
    class_: str = msgspec.field(name="class", default="")
    sriov_totalvfs: str = ""
    """How many virtual functions it may have; a virtual function itself has no such attribute."""

    @property
    def model(self) -> str:
        return f"{self.vendor}:{self.device}"


class Element(msgspec.Struct, frozen=True, gc=False):
    attributes: Device = Device()


class Devices(msgspec.Struct, frozen=True, gc=False):
    """The devices on a bus. There are hundreds of others; only cards are kept."""

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
    """A NodeFeature of NFD, of which only the cards are kept."""

    resource: ClassVar[Resource] = NodeFeature.resource

    spec: Spec = Spec()

    @property
    def node(self) -> str | None:
        """The node whose worker published this; None for NodeFeatures of other programs."""
        return self.name if self.metadata.labels.get(NODE_LABEL) == self.name else None

    @property
    def counts(self) -> Mapping[str, int] | None:
        """Cards by model, such as `10de:2335`; None where the bus is not in it. Virtual functions, which a card shared
        among virtual machines has beside itself, are not counted."""
        devices = self.spec.features.instances.pci
        if devices is None:
            return None
        cards = [one.attributes for one in devices.elements]
        divisible = {card.model for card in cards if card.sriov_totalvfs}
        return Counter(card.model for card in cards if card.sriov_totalvfs or card.model not in divisible)


def is_trusted(namespace: str, others: Set[str] = frozenset()) -> bool:
    """Whether NodeFeatures of this namespace may contradict an agent. `others` are trusted beside the usual ones."""
    return namespace in USUAL_NAMESPACES or namespace in others or namespace.startswith(_SYSTEM_PREFIXES)


class NFDInventory:
    """Watches NFD's NodeFeatures for as long as the process lives."""

    def __init__(
        self, runtime: Runtime, trusted: Set[str], on_change: Callable[[Key], None], *, sync_timeout: timedelta
    ) -> None:
        self._caches = DynamicCaches(runtime.unfenced_client, DiscoveredNode)
        self._trusted = trusted
        self._on_change = on_change
        self._cache = self._caches.follow(_NAME)
        self._cache.index(_NAME, self._nodes_of)
        self._cache.index(_ANY, lambda feature: (_ANY,) if any(self._nodes_of(feature)) else ())
        self._cache.on_change(self._changed)
        self._sync_timeout = sync_timeout
        self._waited = False
        runtime.service(self._caches.run)

    async def ready(self) -> None:
        """Wait until NFD's objects have been read once, for a limited time; where they may not be read, not at all.

        Deciding without them and then with them would be two writes for each node.
        """
        if self._waited or self._cache.is_synced:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._sync_timeout.total_seconds()):
                await self._cache.synced_or_unavailable()
        self._go_on()

    def _go_on(self) -> None:
        """Wait no more; the first of those who waited logs why nothing has been read."""
        if not self._waited and not self._cache.is_synced:
            _log.warning("going on without Node Feature Discovery", why=str(self._cache.watch_error or "it is slow"))
        self._waited = True

    def counts(self, node: str) -> Mapping[str, int] | None:
        """Cards by model on the bus of a node; None where NFD publishes none. Of several namespaces the first by name
        counts."""
        found = sorted(self._cache.by_index(_NAME, node), key=lambda one: one.metadata.namespace or "")
        return next((one.counts for one in found if one.counts is not None), None)

    def is_awaited(self, node: str) -> bool:
        """Whether NFD runs, or may run, and publishes nothing about this node: it may be about to."""
        runs = not self._cache.is_synced or self._cache.count(_ANY, _ANY) > 0
        return runs and self.counts(node) is None

    def _nodes_of(self, feature: DiscoveredNode) -> Iterable[str]:
        trusted = is_trusted(feature.metadata.namespace or "", self._trusted)
        return (feature.node,) if feature.node is not None and trusted else ()

    def _changed(self, old: DiscoveredNode | None, new: DiscoveredNode | None) -> None:
        """A NodeFeature changes with many things; only its cards matter."""
        if (old.counts if old else None) == (new.counts if new else None):
            return
        for node in {node for one in (old, new) if one is not None for node in self._nodes_of(one)}:
            self._on_change(Key(node))


def _is_card(device: Device) -> bool:
    return device.vendor == NVIDIA and device.class_ in _CLASSES
