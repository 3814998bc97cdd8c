"""A merge patch says all that differs, and leads from one document to another."""

from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.merge_patch import merge_patch

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: value is not None)
documents = st.dictionaries(st.text(max_size=2), json, max_size=4)


@given(documents, documents)
def test_a_merge_patch_leads_from_one_document_to_the_other(
    before: dict[str, object], after: dict[str, object]
) -> None:
    def without_nulls(item: object) -> object:
        """The API server keeps no nulls."""
        if isinstance(item, dict):
            return {key: without_nulls(value) for key, value in item.items() if value is not None}
        return item

    def merged(target: object, patch: object) -> object:
        """As RFC 7386 has it."""
        if not isinstance(patch, dict):
            return patch
        result = dict(target) if isinstance(target, dict) else {}
        for key, value in patch.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = merged(result.get(key), value)
        return result

    first, second = without_nulls(before), without_nulls(after)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert merged(first, merge_patch(first, second)) == second
