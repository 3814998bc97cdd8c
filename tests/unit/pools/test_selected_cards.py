"""Counting node by node gives what counting all cards would."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.pools.selected_cards import CardTally

_counts = st.dictionaries(
    st.sampled_from((None, PendingReason.APPROVAL, PendingReason.IN_OTHER_POOL)), st.integers(1, 8)
).map(Counter)
_selected = st.none() | st.dictionaries(st.sampled_from("pq"), _counts)


@given(st.lists(st.tuples(st.sampled_from("abc"), _selected), max_size=20))
def test_the_sum_over_nodes(changes: list[tuple[str, dict[str, Counter[PendingReason | None]] | None]]) -> None:
    tally = CardTally()
    for node, selected in changes:
        before = {pool: tally.of(pool) for pool in "pq"}
        changed = tally.forget(node) if selected is None else tally.put(node, selected)
        assert {pool for pool in "pq" if tally.of(pool) != before[pool]} <= changed
    last = [selected for selected in dict(changes).values() if selected is not None]
    for pool in "pq":
        expected = sum((selected.get(pool, Counter()) for selected in last), Counter[PendingReason | None]())
        assert tally.of(pool).selected == expected.total()
        assert {each.reason: each.cards for each in tally.of(pool).waiting} == {
            reason: cards for reason, cards in expected.items() if reason is not None
        }
