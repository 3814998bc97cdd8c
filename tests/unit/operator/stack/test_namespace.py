"""Which marks the namespace of the operands gets, and which are taken back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.api.namespace import Namespace
from gpu_control_plane.api.nvidia import ClusterPolicySpec
from gpu_control_plane.operator.openshift import OpenShift
from gpu_control_plane.operator.stack.namespace import (
    LABELS,
    MONITORED,
    OPENSHIFT_NAMESPACE,
    REPLACED_LABELS,
    NamespacePatch,
    namespace_patch,
)
from gpu_control_plane.operator.stack.render_input import Platform, RenderInput
from unit.api.nvidia.stock import stock_policy

ENFORCE, AUDIT, WARN = LABELS
WERE_ABSENT = '{"pod-security.kubernetes.io/audit":"","pod-security.kubernetes.io/warn":""}'


def namespace(labels: dict[str, str], note: str | None = None, name: str = "gpu") -> Namespace:
    annotations = {"who": "me"} | ({REPLACED_LABELS: note} if note is not None else {})
    return msgspec.convert({"metadata": {"name": name, "labels": labels, "annotations": annotations}}, Namespace)


def render_input(asked: bool | None, openshift: OpenShift | None = None) -> RenderInput:
    spec: dict[str, Any] = stock_policy()["spec"] | {"psa": {} if asked is None else {"enabled": asked}}
    return RenderInput(
        policy=msgspec.convert(spec, ClusterPolicySpec), platform=Platform(namespace="x", openshift=openshift)
    )


def after(held: Namespace, change: NamespacePatch) -> Namespace:
    meta = held.metadata
    labels = {**meta.labels, **change.labels}
    annotations = {**meta.annotations, **change.annotations}
    return msgspec.structs.replace(
        held,
        metadata=msgspec.structs.replace(
            meta,
            labels={key: value for key, value in labels.items() if value is not None},
            annotations={key: value for key, value in annotations.items() if value is not None},
        ),
    )


@pytest.mark.parametrize(
    ("asked", "held", "set_"),
    [
        (None, {}, {}),
        (False, {}, {}),
        (True, {}, LABELS),
        (True, LABELS | {"team": "ml"}, {}),
        (True, LABELS | {ENFORCE: "baseline"}, {ENFORCE: "privileged"}),
    ],
)
def test_it_is_marked_where_the_policy_asks_for_it(
    asked: bool | None, held: dict[str, str], set_: dict[str, str]
) -> None:
    assert namespace_patch(namespace(held), render_input(asked)).labels == set_


@pytest.mark.parametrize(
    ("labels", "note", "change"),
    [
        pytest.param(LABELS, None, {}, id="they were there before us"),
        pytest.param(LABELS, WERE_ABSENT, {AUDIT: None, WARN: None}, id="one of them was there before us"),
        pytest.param(LABELS, f'{{"{ENFORCE}":"baseline"}}', {ENFORCE: "baseline"}, id="what was there comes back"),
        pytest.param(
            LABELS | {AUDIT: "restricted"}, WERE_ABSENT, {WARN: None}, id="another writer has changed one since"
        ),
        pytest.param(LABELS, "no note", {}, id="the note is spoilt"),
        pytest.param(LABELS, '{"team":"x"}', {}, id="the note speaks of something else"),
    ],
)
@pytest.mark.parametrize("wanted", [render_input(False), None], ids=["switched off", "without a policy"])
def test_only_marks_that_we_set_are_taken_back(
    labels: dict[str, str], note: str | None, change: dict[str, str | None], wanted: RenderInput | None
) -> None:
    found = namespace_patch(namespace(labels, note), wanted)
    assert found.labels == change
    assert found.annotations == ({REPLACED_LABELS: None} if note is not None else {})


_VALUES = st.sampled_from([None, "", "baseline", "restricted", "privileged"])


@given(st.fixed_dictionaries(dict.fromkeys(LABELS, _VALUES)), st.dictionaries(st.sampled_from([*LABELS]), _VALUES))
def test_on_and_off_leaves_no_trace_whatever_others_did_in_between(
    values: dict[str, str | None], meddled: dict[str, str | None]
) -> None:
    first = namespace({label: value for label, value in values.items() if value})
    marked = after(first, namespace_patch(first, render_input(True)))
    assert LABELS.items() <= marked.metadata.labels.items()
    assert not namespace_patch(marked, render_input(True))
    spoilt = after(marked, NamespacePatch(labels={key: value or None for key, value in meddled.items()}))
    mended = after(spoilt, namespace_patch(spoilt, render_input(True)))
    assert LABELS.items() <= mended.metadata.labels.items()
    left = after(marked, namespace_patch(marked, None))
    assert left == first
    assert not namespace_patch(left, None)


@pytest.mark.parametrize(
    ("name", "labels", "asked", "change"),
    [
        ("gpu", {}, True, {}),
        ("gpu", {}, False, {}),
        (OPENSHIFT_NAMESPACE, {}, True, LABELS | {MONITORED: "true"}),
        (OPENSHIFT_NAMESPACE, {}, False, {MONITORED: "true"}),
        (OPENSHIFT_NAMESPACE, {MONITORED: "false"}, False, {}),
    ],
)
def test_on_openshift_only_a_namespace_of_our_own_is_marked(
    name: str, labels: dict[str, str], asked: bool, change: dict[str, str]
) -> None:
    assert (
        namespace_patch(namespace(labels, name=name), render_input(asked, OpenShift(version="4.20"))).labels == change
    )
