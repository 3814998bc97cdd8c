"""What drivers report about the cards that can be cut: the vendor's tables, and small builders around them."""

from gpu_control_plane.api.allocation import MIG, ProfileCount
from gpu_control_plane.api.gpudevice import MIGCapability, MIGProfile
from gpu_control_plane.rules.mig_layout import Slot

_SEVEN = (
    (7, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (4, 2, (0, 2, 4, 6)),
    (3, 2, (0, 2, 4)),
    (2, 4, (0, 4)),
    (1, 4, (0,)),
    (1, 8, (0,)),
)
_FOUR = ((4, 1, (0, 1, 2, 3)), (1, 1, (0, 1, 2, 3)), (2, 2, (0, 2)), (1, 2, (0, 2)), (1, 4, (0,)))

_NAMES = {
    "A100-40": ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "A100-80": ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100-80": ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "GH200-96": ("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    "H200": ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    "B200": ("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    "A30": ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"),
}


def _capability(names: tuple[str, ...], *, enabled: bool) -> MIGCapability:
    shapes = _FOUR if len(names) == len(_FOUR) else _SEVEN
    profiles = (
        MIGProfile(name=name, count=count, memory_mib=0, slices=slices, starts=starts)
        for name, (count, slices, starts) in zip(names, shapes, strict=True)
    )
    return MIGCapability.of(profiles, enabled=enabled)


CARDS = {family: _capability(names, enabled=True) for family, names in _NAMES.items()}
H200 = CARDS["H200"]
A30 = CARDS["A30"]


def layout(**counts: int) -> MIG:
    """A mixed target on an H200, by the shape of its instances."""
    return mixed({_H200[shape]: count for shape, count in counts.items()})


def mixed(counts: dict[str, int]) -> MIG:
    return MIG(layout=tuple(ProfileCount(profile=profile, count=count) for profile, count in counts.items()))


def equal(profile: str) -> MIG:
    return MIG(profile=profile)


def slots(*places: str, card: MIGCapability = H200) -> frozenset[Slot]:
    """`slots("3g@4")`, for the H200's shapes or full names."""
    sizes = {profile.name: profile.slices for profile in card.profiles}
    found = set()
    for place in places:
        shape, _, start = place.partition("@")
        profile = _H200.get(shape, shape)
        found.add(Slot(int(start), sizes[profile], profile))
    return frozenset(found)


_H200 = dict(zip(("g1", "g1me", "g1big", "g2", "g3", "g4", "g7"), _NAMES["H200"], strict=True))
