"""A declared object becomes exactly what is declared, whatever was there."""

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.nvidia.stored import StoredClusterPolicy
from gpu_control_plane.installation.declare import Declared, Meta, command, patch_of

names = st.sampled_from(["driver", "enabled", "env", "version"])
leaves = st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
trees = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)
specs = st.dictionaries(names, trees, max_size=4)


def patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    live = StoredClusterPolicy(spec=msgspec.Raw(msgspec.json.encode(before)))
    return patch_of(live, Declared("ClusterPolicy", Meta("cluster-policy", {"a": "b"}), after))


def merged(target: Any, change: Any) -> Any:
    """RFC 7396, word by word."""
    if not isinstance(change, dict):
        return change
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


@given(specs, specs)
def test_the_spec_becomes_the_declared_one(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert merged(before, patch(before, after)["spec"]) == after


@given(specs)
def test_nothing_is_written_where_nothing_differs(spec: dict[str, Any]) -> None:
    assert patch(spec, spec)["spec"] == {}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ('{"kind": "Pod", "metadata": {"name": "x"}, "spec": {}}', "Invalid enum value 'Pod' - at `$.kind`."),
        ('{"kind": "ClusterPolicy", "metadata": {"name": ""}, "spec": {}}', "`$.metadata.name`."),
        ('{"kind": "ClusterPolicy", "metadata": {"name": "x"}}', "missing required field `spec`."),
        ("driver", "JSON is malformed"),
    ],
)
def test_what_is_no_object_of_ours_is_refused(given: str, sentence: str) -> None:
    answer = CliRunner().invoke(command, [given])
    assert answer.exit_code == 2
    assert sentence in answer.output
