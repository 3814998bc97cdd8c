"""How a card is divided among pods: whole, in MIG instances, or in turns.

A pool asks for it and a node is ordered to do it in the same words, so both kinds share these types.
"""

from typing import Annotated, ClassVar, Final

from gpu_control_plane.api.shapes import Part
from gpu_control_plane.kube.fields import OpenEnum, Rule, about

MAX_LAYOUT: Final = 16
MAX_PROFILE: Final = 24

_PROFILE_RULE: Final = Rule(
    r"self.matches('^[1-9][0-9]?g\\.[1-9][0-9]{0,3}gb([+.]me([.]all)?|[+.]gfx|-me)?$')",
    "write a MIG profile as the driver lists it: 1g.18gb, 3g.71gb, 1g.18gb+me, 1g.24gb+gfx or 2g.48gb-me",
)


class Mode(OpenEnum):
    """How a card is shared."""

    EXCLUSIVE = "Exclusive", "one pod has the whole card."
    MIG = "MIG", "the card is cut into isolated instances."
    TIME_SLICE = "TimeSlice", "pods take turns on the card, without isolation of memory or faults."


Profile = Annotated[
    str, about("MIG profile, such as 1g.18gb or 1g.18gb+me.", _PROFILE_RULE, minLength=1, maxLength=MAX_PROFILE)
]


class ProfileCount(Part, frozen=True, kw_only=True):
    """So many instances of one profile on each card."""

    profile: Profile
    count: Annotated[int, about("Instances of this profile on each card.", minimum=1, maximum=16)]


class MIG(Part, frozen=True, kw_only=True):
    """How each card is cut."""

    profile: Annotated[
        Profile | None,
        about("Cuts each card into as many instances of this profile as fit; they make up one resource."),
    ] = None
    layout: Annotated[
        tuple[ProfileCount, ...],
        about(
            "Cuts each card into different instances. Each profile is a resource of its own, "
            "<resource.name>.<profile> with '+' written '.'.",
            Rule(
                "self.all(a, self.exists_one(b, a.profile.replace('+', '.') == b.profile.replace('+', '.')))",
                "two entries of the layout name the same profile: join their counts",
            ),
            keys=("profile",),
            minItems=1,
            maxItems=MAX_LAYOUT,
        ),
    ] = ()

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.profile) != has(self.layout)",
            "give either mig.profile (equal instances) or mig.layout (different ones), not both",
        ),
    )


class TimeSlice(Part, frozen=True, kw_only=True):
    """How many pods take turns."""

    replicas: Annotated[int, about("Units into which each card is divided.", minimum=2, maximum=64)]


class Allocation(Part, frozen=True, kw_only=True):
    """How cards are divided among pods. A node's orders leave nothing out."""

    mode: Annotated[Mode, about("How a card is shared.")]
    mig: Annotated[MIG | None, about("How cards are cut; with mode MIG only.")] = None
    time_slice: Annotated[TimeSlice | None, about("How cards take turns; with mode TimeSlice only.")] = None

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.mode == 'MIG') == has(self.mig)",
            "mode MIG needs allocation.mig (profile or layout), and no other mode may have it",
        ),
        Rule(
            "(self.mode == 'TimeSlice') == has(self.timeSlice)",
            "mode TimeSlice needs allocation.timeSlice.replicas, and no other mode may have it",
        ),
    )

    @property
    def profiles(self) -> tuple[str, ...]:
        """The MIG profiles in use, each spelt as the driver spells it."""
        if self.mig is None:
            return ()
        named = (self.mig.profile,) if self.mig.profile else tuple(part.profile for part in self.mig.layout)
        return tuple(canonical_profile(profile) for profile in named)

    @property
    def canonical(self) -> "Allocation":
        """The same allocation in one spelling: two that mean the same are equal."""
        mig = self.mig
        if mig is not None:
            parts = (ProfileCount(profile=canonical_profile(part.profile), count=part.count) for part in mig.layout)
            mig = MIG(
                profile=canonical_profile(mig.profile) if mig.profile else None,
                layout=tuple(sorted(parts, key=lambda part: part.profile)),
            )
        return Allocation(mode=self.mode, mig=mig, time_slice=self.time_slice)

    def __str__(self) -> str:
        """As a person says it: `Exclusive`, `MIG 1g.18gb`, `MIG 1x3g.71gb 3x1g.18gb`, `TimeSlice 4`."""
        match self.mode, self.mig, self.time_slice:
            case Mode.TIME_SLICE, _, TimeSlice(replicas=replicas):
                return f"{self.mode} {replicas}"
            case Mode.MIG, MIG(profile=str(profile)), _:
                return f"{self.mode} {profile}"
            case Mode.MIG, MIG(layout=layout), _:
                return f"{self.mode} {' '.join(f'{part.count}x{part.profile}' for part in layout)}"
        return str(self.mode)


class PoolAllocation(Allocation, frozen=True, kw_only=True):
    """How the cards of a pool are divided among pods: whole by default."""

    mode: Annotated[Mode, about("How a card is shared.", default=True)] = Mode.EXCLUSIVE


def canonical_profile(profile: str) -> str:
    """The driver's spelling: resource names write `1g.18gb.me` for `1g.18gb+me`."""
    size, unit, variant = profile.partition("gb")
    return f"{size}{unit}+{variant[1:]}" if variant.startswith(".") else profile


def resource_suffix(profile: str) -> str:
    """A profile as part of a resource name, where `+` is not allowed."""
    return profile.replace("+", ".")
