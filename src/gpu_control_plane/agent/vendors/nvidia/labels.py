"""The feature labels of a node, as NVIDIA's GPU Feature Discovery writes them: facts in, `nvidia.com/*` labels out.

Workloads select nodes by these labels, so names and values are GFD's. On a node with cards of several models GFD is not
deterministic; here the labels are about the most common model, among equals the one at the lowest address, and describe
its first card; `gpu.count` counts the cards of that model.
"""

import enum
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.agent.backends.interface import Instance
from gpu_control_plane.agent.vendors.interface import LabelFacts
from gpu_control_plane.api.allocation import resource_suffix
from gpu_control_plane.api.gpudevice import Hardware, Vendor

PREFIX: Final = "nvidia.com/"
TIMESTAMP: Final = PREFIX + "gfd.timestamp"

_LONGEST: Final = 63
_OURS: Final = re.compile(
    r"nvidia\.com/(?:"
    r"cuda\.(?:driver|runtime)(?:-version)?\.(?:major|minor|rev|revision|full)"
    r"|gfd\.timestamp|mig\.capable|mig\.strategy|mps\.capable"
    r"|vgpu\.(?:present|host-driver-version|host-driver-branch)"
    r"|gpu\.(?:machine|mode|clique|family|compute\.major|compute\.minor)"
    r"|(?:gpu|mig-[^/]+)\.(?:product|count|replicas|memory|sharing-strategy|multiprocessors|slices\.[a-z]+|engines\.[a-z]+)"
    r")"
)
_FAMILIES: Final = {
    (7, 0): "volta", (7, 2): "volta", (7, 5): "turing", (8, 9): "ada-lovelace",
    (8,): "ampere", (9,): "hopper", (10,): "blackwell", (11,): "blackwell", (12,): "blackwell",
}  # fmt: skip
_MODES: Final = {"0302": "compute", "0300": "graphics"}
_ENGINES: Final = ("copy", "decoder", "encoder", "jpeg", "ofa")


class MIGStrategy(enum.StrEnum):
    """How MIG instances are offered: not at all, in place of cards, or each profile under its own name."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class InstanceAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """What a MIG instance of one profile consists of; None for what the driver does not report."""

    memory_mib: int | None = None
    multiprocessors: int | None = None
    copy: int | None = None
    decoder: int | None = None
    encoder: int | None = None
    jpeg: int | None = None
    ofa: int | None = None


class VGPU(msgspec.Struct, frozen=True):
    """The driver below a node whose cards are virtual."""

    host_driver: str
    branch: str


class GFDFacts(LabelFacts, frozen=True, kw_only=True):
    """What GFD's labels say beyond what the agent knows of any vendor's cards."""

    strategy: MIGStrategy = MIGStrategy.NONE
    attributes: Mapping[str, InstanceAttributes] = {}
    """By MIG profile, as the driver spells it."""
    vgpu: VGPU | None = None


def labels(facts: GFDFacts, held: Mapping[str, str], now: float) -> dict[str, str]:
    """The labels of a node; none without an NVIDIA card.

    `held` are the labels that the Node has: the timestamp stays until another label changes.
    """
    cards = sorted((card for card in facts.cards if card.vendor is Vendor.NVIDIA), key=lambda card: card.pci.address)
    if not cards:
        return {}
    parts = {
        **_software(facts),
        **_node(facts, cards),
        **_resources(facts, _typical(cards)),
    }
    written = {PREFIX + name: text for name, value in parts.items() if (text := label_value(value))}
    stamp = held.get(TIMESTAMP, "")
    same = stamp and written | {TIMESTAMP: stamp} == held
    return written | {TIMESTAMP: stamp if same else str(int(now))}


def gfd_facts(facts: LabelFacts) -> GFDFacts:
    """As the agent offers MIG instances: each profile under a name of its own."""
    strategy = MIGStrategy.MIXED if any(map(_mig_enabled, facts.cards)) else MIGStrategy.NONE
    return GFDFacts(**msgspec.structs.asdict(facts), strategy=strategy)


def is_ours(name: str) -> bool:
    """Whether feature discovery writes labels of this name: people and operators have labels of their own beside."""
    return _OURS.fullmatch(name) is not None


def label_value(text: str) -> str:
    """Spaces as `-`, `+` as `.`, what a label may not hold dropped, at most 63 characters, clean at both ends."""
    spelled = re.sub(r"\s+", "-", text.strip()).replace("+", ".")
    return re.sub(r"[^A-Za-z0-9._-]", "", spelled)[:_LONGEST].strip("._-")


def _software(facts: GFDFacts) -> dict[str, str]:
    driver = facts.driver
    if driver is None:
        return {}
    major, minor, revision = [*driver.version.split("."), "", ""][:3]
    found = {
        "cuda.driver-version.major": major, "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision, "cuda.driver-version.full": driver.version,
        "cuda.driver.major": major, "cuda.driver.minor": minor, "cuda.driver.rev": revision,
    }  # fmt: skip
    if driver.cuda_version:
        major, minor = [*driver.cuda_version.split("."), "0"][:2]
        found |= {
            "cuda.runtime-version.major": major, "cuda.runtime-version.minor": minor,
            "cuda.runtime-version.full": driver.cuda_version,
            "cuda.runtime.major": major, "cuda.runtime.minor": minor,
        }  # fmt: skip
    return found


def _node(facts: GFDFacts, cards: Sequence[Hardware]) -> dict[str, str]:
    classes = {card.pci.class_ for card in cards}
    cliques = {clique for card in cards if (clique := _clique(facts, card))}
    return {
        "gpu.machine": facts.machine,
        "gpu.mode": _MODES.get(next(iter(classes)), "unknown") if len(classes) == 1 else "unknown",
        "gpu.clique": next(iter(cliques)) if len(cliques) == 1 else "",
        "mig.capable": _boolean(any(card.mig is not None and card.mig.capable for card in cards)),
        "mig.strategy": facts.strategy.value,
        "mps.capable": "false",
        "vgpu.present": _boolean(facts.vgpu is not None),
        "vgpu.host-driver-version": facts.vgpu.host_driver if facts.vgpu else "",
        "vgpu.host-driver-branch": facts.vgpu.branch if facts.vgpu else "",
    }


def _typical(cards: Sequence[Hardware]) -> list[Hardware]:
    """The cards of the most common model."""
    counts = Counter(card.product for card in cards)
    product = counts.most_common(1)[0][0]
    return [card for card in cards if card.product == product]


def _resources(facts: GFDFacts, cards: Sequence[Hardware]) -> dict[str, str]:
    partitioned = [card for card in cards if _mig_enabled(card)]
    if facts.strategy is MIGStrategy.SINGLE and partitioned:
        return _single(facts, cards)
    found = _whole(facts, cards)
    if facts.strategy is MIGStrategy.MIXED:
        profiles = Counter(instance.profile for card in partitioned for instance in _instances(facts, card))
        for profile, count in sorted(profiles.items()):
            name = f"mig-{resource_suffix(profile)}."
            found |= {name + key: value for key, value in _instance(facts, partitioned[0], profile, count).items()}
    return found


def _whole(facts: GFDFacts, cards: Sequence[Hardware]) -> dict[str, str]:
    first = cards[0]
    replicas = 0 if _mig_enabled(first) else facts.replicas.get(first.pci.address, 1)
    shared = replicas > 1
    return _family(first) | {
        "gpu.product": first.product + ("-SHARED" if shared else ""),
        "gpu.count": str(len(cards)),
        "gpu.replicas": str(replicas),
        "gpu.sharing-strategy": "time-slicing" if shared else "none",
        "gpu.memory": _number(first.memory_mib),
    }


def _single(facts: GFDFacts, cards: Sequence[Hardware]) -> dict[str, str]:
    """All cards partitioned alike: the instances take the place of cards. A node partitioned otherwise has none."""
    first = cards[0]
    profiles = Counter(instance.profile for card in cards for instance in _instances(facts, card))
    if len(profiles) == 1 and all(_mig_enabled(card) and _instances(facts, card) for card in cards):
        ((profile, count),) = profiles.items()
        found = _instance(facts, first, profile, count)
    else:
        found = {"product": f"{first.product}-MIG-INVALID", "count": "0", "replicas": "0", "memory": "0"}
        found |= {"sharing-strategy": "none"}
    return _family(first) | {f"gpu.{name}": value for name, value in found.items()}


def _instance(facts: GFDFacts, card: Hardware, profile: str, count: int) -> dict[str, str]:
    attributes = facts.attributes.get(profile, InstanceAttributes())
    capability = next((one for one in card.mig.profiles if one.name == profile), None) if card.mig else None
    memory = attributes.memory_mib if capability is None else capability.memory_mib
    compute, gpu = _slices(profile)
    return {
        "product": f"{card.product}-MIG-{resource_suffix(profile)}",
        "count": str(count),
        "replicas": "1",
        "sharing-strategy": "none",
        "memory": _number(memory),
        "multiprocessors": _number(attributes.multiprocessors),
        "slices.gi": gpu,
        "slices.ci": compute,
        **{f"engines.{engine}": _number(getattr(attributes, engine)) for engine in _ENGINES},
    }


def _slices(profile: str) -> tuple[str, str]:
    """Compute and GPU slices by the profile's name: one compute instance spans the whole unless the name says so."""
    found = re.match(r"(?:(\d+)c\.)?(\d+)g\.", profile)
    return (found[1] or found[2], found[2]) if found else ("", "")


def _family(card: Hardware) -> dict[str, str]:
    if card.compute_capability is None:
        return {}
    major, minor = card.compute_capability.split(".")
    family = _FAMILIES.get((int(major), int(minor))) or _FAMILIES.get((int(major),)) or "undefined"
    return {"gpu.family": family, "gpu.compute.major": major, "gpu.compute.minor": minor}


def _mig_enabled(card: Hardware) -> bool:
    return card.mig is not None and card.mig.enabled


def _instances(facts: GFDFacts, card: Hardware) -> Sequence[Instance]:
    return facts.instances.get(card.pci.address, ())


def _clique(facts: GFDFacts, card: Hardware) -> str | None:
    found = facts.details.get(card.pci.address)
    return found.clique if found else None


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
