"""Orders that the API accepts, however little sense they make."""

from hypothesis import strategies as st

from gpu_control_plane.agent.simulated.models import PROFILES
from gpu_control_plane.api.allocation import (
    MAX_LAYOUT,
    MIG,
    Allocation,
    Mode,
    ProfileCount,
    TimeSlice,
    canonical_profile,
    resource_suffix,
)
from gpu_control_plane.api.gpunodestate import MAX_CARDS, Assignment, OfferedResource
from gpu_control_plane.api.identity import inventory_id
from unit.agent.step.builders import NODE, machine

CARDS = [inventory_id(NODE, address) for address in machine(4).addresses]
REAL = sorted({each.name for profile in PROFILES.values() if profile.mig for each in profile.mig.profiles})

inventory_ids = st.one_of(
    st.sampled_from(CARDS),
    st.text("abc-0", min_size=1, max_size=12).map(lambda tail: f"{NODE}-{tail}"),
)
resource_names = st.one_of(
    st.sampled_from(
        [
            *("gpu.deckhouse.io/training", "gpu.deckhouse.io/serving", "gpu.deckhouse.io/training.1g.18gb"),
            *("nvidia.com/gpu", "cpu", "requests.gpu.deckhouse.io/x", "kubernetes.io/gpu", "a/b/c", "/", "Ünsinn/gpu"),
            *(f"gpu.deckhouse.io/{'x' * 64}", f"{'x.' * 60}io/{'y' * 63}", "x" * 253),
        ]
    ),
    st.text(min_size=1, max_size=40),
)
profiles = st.one_of(
    st.sampled_from([*REAL, *map(resource_suffix, REAL)]),
    st.from_regex(r"[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([+.]me([.]all)?|[+.]gfx|-me)?", fullmatch=True),
)


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    """As the CRD's rules have it: each mode with what belongs to it, and a mode of a later release."""
    mode = draw(st.sampled_from([*Mode, Mode("MPS"), Mode("")]))
    if mode is Mode.TIME_SLICE:
        return Allocation(mode=mode, time_slice=TimeSlice(replicas=draw(st.sampled_from([2, 3, 64]))))
    if mode is not Mode.MIG:
        return Allocation(mode=mode)
    if draw(st.booleans()):
        return Allocation(mode=mode, mig=MIG(profile=draw(profiles)))
    counts = st.builds(ProfileCount, profile=profiles, count=st.integers(1, 16))
    layout = st.lists(counts, min_size=1, max_size=MAX_LAYOUT, unique_by=lambda part: canonical_profile(part.profile))
    return Allocation(mode=mode, mig=MIG(layout=tuple(draw(layout))))


resources = st.lists(
    st.builds(
        OfferedResource,
        name=resource_names,
        units=st.integers(1, 64),
        profile=st.one_of(st.none(), profiles, st.text(max_size=24)),
    ),
    min_size=1,
    max_size=16,
    unique_by=lambda resource: resource.name,
)
assignments = st.builds(
    Assignment,
    inventory_id=inventory_ids,
    pool=st.sampled_from(["training", "serving", "x"]),
    resources=resources.map(tuple),
    allocation=allocations(),
)
orders = st.one_of(
    st.lists(assignments, max_size=6, unique_by=lambda order: order.inventory_id),
    st.lists(assignments, max_size=MAX_CARDS, unique_by=lambda order: order.inventory_id),
)
"""What one GPUNodeState may hold."""


def named(order: Assignment) -> Assignment:
    """The same order as `pools` would write it: every profile has a resource of its own, with a proper name."""
    offered = tuple(
        OfferedResource(name=f"gpu.deckhouse.io/{order.pool}.{resource_suffix(profile)}", units=1, profile=profile)
        for profile in order.allocation.profiles
    )
    whole = (OfferedResource(name=f"gpu.deckhouse.io/{order.pool}", units=1),)
    return Assignment(
        inventory_id=order.inventory_id, pool=order.pool, resources=offered or whole, allocation=order.allocation
    )
