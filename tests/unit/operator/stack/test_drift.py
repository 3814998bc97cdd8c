"""What the API server fills in is no drift; what another writer changes, removes or adds is."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.kube.client import decoder
from gpu_control_plane.operator.stack.drift import ComparedObjects, content_drifts, metadata_drifts
from gpu_control_plane.operator.stack.live import LiveSecurityContextConstraints
from gpu_control_plane.operator.stack.manifest import Manifest, assets
from gpu_control_plane.operator.stack.operands import STATES
from unit.operator.stack.drift_examples import SENT, answer, live, sent

Path = tuple[str | int, ...]
RICH = "rich DaemonSet"
_MAIN: Path = ("spec", "template", "spec", "containers", 0)
_FIRST: Path = ("spec", "template", "spec", "initContainers", 0)
_POD: Path = ("spec", "template", "spec")
_ALLOTTED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "nodePort")


def at(manifest: Any, path: Path) -> Any:
    for part in path:
        manifest = manifest[part]
    return manifest


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place that holds something that is no container of other things."""
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    else:
        yield path


def mappings(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from mappings(value[key], (*path, key))


def content(manifest: Manifest) -> Manifest:
    left_out = ("apiVersion", "kind", "metadata", "status")
    return {name: value for name, value in manifest.items() if name not in left_out}


def other(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}1"
        case _:
            return {"changed": "by hand"}


@pytest.mark.parametrize("name", SENT)
def test_what_the_api_server_fills_in_is_no_drift(name: str) -> None:
    assert not content_drifts(sent(name), live(answer(name)))


@pytest.mark.parametrize("name", [name for name in SENT if name != "ServiceAccount"])
def test_every_changed_value_is_drift(name: str) -> None:
    whole = answer(name)
    variants = [path for path in leaves(content(whole)) if not set(_ALLOTTED) & set(path)]
    assert variants
    for path in variants:
        changed = copy.deepcopy(whole)
        at(changed, path[:-1])[path[-1]] = other(at(whole, path))
        assert content_drifts(sent(name), live(changed)), path


@pytest.mark.parametrize("name", [name for name in SENT if name != "ServiceAccount"])
def test_every_value_of_ours_that_is_gone_is_drift(name: str) -> None:
    whole, ours = answer(name), content(sent(name))
    for path in leaves(ours):
        if at(ours, path) in ("", [], {}) or (path[-1], at(ours, path)) in (("hostPID", False), ("readOnly", False)):
            continue  # as good as nothing
        changed = copy.deepcopy(whole)
        del at(changed, path[:-1])[path[-1]]
        assert content_drifts(sent(name), live(changed)), path


@given(
    name=st.sampled_from([name for name in SENT if "DaemonSet" in name]),
    where=st.randoms(use_true_random=False),
    key=st.one_of(
        st.sampled_from(
            [
                "restartPolicy",
                "hostPort",
                "nodeName",
                "command",
                "type",
                "protocol",
                "scheme",
                "apiVersion",
                "defaultMode",
            ]
        ),
        st.text(min_size=1),
    ),
    value=st.one_of(
        st.sampled_from(["Always", "TCP", "HTTP", "v1", "File", "RollingUpdate", 1, 10, 30, 420]),
        st.text(min_size=1),
        st.integers(),
        st.just(True),
        st.dictionaries(st.text(), st.integers(), min_size=1),
    ),
)
def test_every_added_field_of_a_daemonset_is_drift(name: str, where: Any, key: str, value: object) -> None:
    changed = answer(name)
    variant = at(changed["spec"], where.choice(list(mappings(changed["spec"]))))
    if key in variant:
        return
    variant[key] = value
    assert content_drifts(sent(name), live(changed))


@pytest.mark.parametrize(
    ("path", "addition"),
    [
        ((*_MAIN, "env"), {"name": "LD_PRELOAD", "value": "/evil.so"}),
        ((*_POD, "containers"), {"name": "miner", "image": "evil.example/miner:1"}),
        ((*_POD, "volumes"), {"name": "more", "emptyDir": {}}),
        ((*_MAIN, "volumeMounts"), {"name": "empty", "mountPath": "/more"}),
    ],
)
def test_every_added_element_is_drift(path: Path, addition: Manifest) -> None:
    changed = answer(RICH)
    at(changed, path).append(addition)
    assert content_drifts(sent(RICH), live(changed))


@pytest.mark.parametrize(
    ("path", "value", "drifts"),
    [
        ((*_FIRST, "restartPolicy"), "Always", True),  # a default of pods, but it makes a sidecar of an init container
        ((*_MAIN, "ports", 0, "hostPort"), 9400, True),
        ((*_POD, "automountServiceAccountToken"), None, True),  # off is not the same as nothing said
        ((*_POD, "automountServiceAccountToken"), True, True),
        ((*_POD, "hostNetwork"), False, False),
        ((*_POD, "hostNetwork"), True, True),
        ((*_POD, "tolerations"), [], False),
        ((*_POD, "tolerations"), [{"operator": "Exists"}], True),
        ((*_POD, "nodeSelector"), None, True),
        ((*_POD, "securityContext"), {"runAsUser": 1}, True),
        (("spec", "template", "metadata", "creationTimestamp"), None, False),
        (("spec", "minReadySeconds"), 5, True),
    ],
)
def test_places_matter(path: Path, value: object, drifts: bool) -> None:
    changed = answer(RICH)
    at(changed, path[:-1])[path[-1]] = value
    assert content_drifts(sent(RICH), live(changed)) is drifts


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("0.5", "500m", True),
        ("1", 1, True),
        (1, "1000m", True),
        ("1Gi", "1024Mi", True),
        ("1G", "1Gi", False),
        ("1k", "1000", True),
        ("1e3", "1k", True),
        ("100u", "0.1m", True),
        ("500m", "501m", False),
        ("nonsense", "nonsense", True),
        ("nonsense", "1", False),
    ],
)
def test_quantities_are_compared_as_numbers(ours: int | str, theirs: int | str, same: bool) -> None:
    wanted, there = sent(RICH), answer(RICH)
    at(wanted, _MAIN)["resources"] = {"limits": {"cpu": ours}}
    at(there, _MAIN)["resources"] = {"limits": {"cpu": theirs}}
    assert content_drifts(wanted, live(there)) is not same


@pytest.mark.parametrize("held", [{"cpu": "1", "memory": "1Gi"}, {}, None])
def test_a_quantity_too_many_or_too_few_is_drift(held: dict[str, str] | None) -> None:
    wanted, there = sent(RICH), answer(RICH)
    at(wanted, _MAIN)["resources"] = {"limits": {"cpu": "1"}}
    at(there, _MAIN)["resources"] = {"limits": held}
    assert content_drifts(wanted, live(there))


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("Service", ("spec", "ports", 0, "nodePort"), 30000),
        ("Service", ("spec", "externalIPs"), ["192.0.2.1"]),
        ("ConfigMap", ("binaryData",), {"a": "AAAA"}),
        ("ConfigMap", ("immutable",), True),
        ("RuntimeClass", ("overhead",), {"podFixed": {"cpu": "1"}}),
        ("RoleBinding", ("subjects", 0, "namespace"), "kube-system"),
    ],
)
def test_additions_to_other_kinds_are_drift(name: str, path: Path, value: object) -> None:
    changed = answer(name)
    at(changed, path[:-1])[path[-1]] = value
    assert content_drifts(sent(name), live(changed))


def test_additions_to_a_service_account_are_no_drift() -> None:
    changed = answer("ServiceAccount") | {"imagePullSecrets": [{"name": "theirs"}]}
    assert not content_drifts(sent("ServiceAccount"), live(changed))


OWNER = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "p", "uid": "1", "controller": True}


def _unlabel(metadata: Manifest) -> None:
    del metadata["labels"]["app"]


def _relabel(metadata: Manifest) -> None:
    metadata["labels"]["app"] = "another"


def _annotate(metadata: Manifest) -> None:
    metadata["annotations"]["ours"] = "another"


def _disown(metadata: Manifest) -> None:
    metadata["ownerReferences"] = []


def _steal(metadata: Manifest) -> None:
    metadata["ownerReferences"] = [{**OWNER, "uid": "2"}]


def _add(metadata: Manifest) -> None:
    metadata["labels"]["theirs"] = metadata["annotations"]["theirs"] = "yes"


@pytest.mark.parametrize(
    ("change", "drifts"),
    [(_unlabel, True), (_relabel, True), (_annotate, True), (_disown, True), (_steal, True), (_add, False)],
)
def test_labels_and_annotations_of_other_writers_are_no_drift(change: Callable[[Manifest], None], drifts: bool) -> None:
    wanted = sent("ConfigMap")
    wanted["metadata"] |= {"annotations": {"ours": "yes"}, "ownerReferences": [OWNER]}
    there = answer("ConfigMap")
    there["metadata"] |= copy.deepcopy(wanted["metadata"])
    assert not metadata_drifts(wanted, live(there))
    change(there["metadata"])
    assert metadata_drifts(wanted, live(there)) is drifts


CONSTRAINTS = [
    manifest
    for state in STATES
    for manifest in assets(state.name, openshift=True)
    if manifest["kind"] == "SecurityContextConstraints"
]


def as_openshift_has_it(manifest: Manifest, **changes: Any) -> LiveSecurityContextConstraints:
    """With what OpenShift adds by itself."""
    added: dict[str, Any] = {
        "priority": None,
        "groups": [],
        "allowedFlexVolumes": None,
        "userNamespaceLevel": "AllowHostLevel",
    }
    return decoder(LiveSecurityContextConstraints).decode(msgspec.json.encode({**added, **manifest, **changes}))


@pytest.mark.parametrize("manifest", CONSTRAINTS, ids=lambda held: held["metadata"]["name"])
def test_security_context_constraints_are_compared(manifest: Manifest) -> None:
    assert not content_drifts(manifest, as_openshift_has_it(manifest))
    for name, value in content(manifest).items():
        if value:
            assert content_drifts(manifest, as_openshift_has_it(manifest, **{name: None})), name
        assert content_drifts(manifest, as_openshift_has_it(manifest, **{name: _another(value)})), name
    assert content_drifts(manifest, as_openshift_has_it(manifest, groups=["system:authenticated"]))


def _another(value: object) -> object:
    match value:
        case bool():
            return not value
        case list():
            return [*value, "more"]
        case _:
            return {"type": "MustRunAs"}


def _version(name: str, **metadata: object) -> Any:
    """The answer of the API server with other metadata."""
    found = answer(name)
    found["metadata"] |= metadata
    return live(found)


def test_an_object_is_compared_again_only_after_it_or_its_manifest_has_changed() -> None:
    compared = ComparedObjects()
    held = _version(RICH, uid="1", generation=4, resourceVersion="10", labels={"app": "example"})
    assert not compared.unchanged(sent(RICH), held)
    compared.remember(sent(RICH), held)
    assert compared.unchanged(sent(RICH), held)
    other_status = _version(RICH, uid="1", generation=4, resourceVersion="11", labels={"app": "example"})
    assert compared.unchanged(sent(RICH), other_status), "the status of a DaemonSet changes with every pod"
    changed = sent(RICH)
    changed["spec"]["minReadySeconds"] = 1
    assert not compared.unchanged(changed, held)


@pytest.mark.parametrize(
    "metadata",
    [
        {"uid": "2"},
        {"generation": 5},
        {"labels": {}},
        {"annotations": {"theirs": "yes"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "3"}]},
    ],
    ids=lambda held: next(iter(held)),
)
def test_every_change_of_an_object_makes_it_be_compared_again(metadata: dict[str, object]) -> None:
    compared = ComparedObjects()
    known: dict[str, object] = {"uid": "1", "generation": 4, "labels": {"app": "example"}}
    compared.remember(sent(RICH), _version(RICH, **known))
    assert not compared.unchanged(sent(RICH), _version(RICH, **known | metadata))


def test_an_object_without_a_generation_is_compared_again_with_every_version() -> None:
    compared = ComparedObjects()
    compared.remember(sent("ConfigMap"), _version("ConfigMap", resourceVersion="10"))
    assert compared.unchanged(sent("ConfigMap"), _version("ConfigMap", resourceVersion="10"))
    assert not compared.unchanged(sent("ConfigMap"), _version("ConfigMap", resourceVersion="11"))
