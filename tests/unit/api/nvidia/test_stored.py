"""One object that cannot be read says why, and holds up no other."""

import msgspec
import pytest

from gpu_control_plane.api.nvidia import (
    ClusterPolicy,
    ClusterPolicySpec,
    NVIDIADriver,
    StoredClusterPolicy,
    StoredNVIDIADriver,
    UnreadableSpec,
    read_spec,
)
from integration.api.rows import changed
from unit.api.nvidia.stock import stock_driver, stock_policy

encode = msgspec.json.encode


def test_a_stored_object_gives_the_same_spec_as_its_kind() -> None:
    policy, driver = encode(stock_policy()), encode(stock_driver())
    stored = msgspec.json.decode(policy, type=StoredClusterPolicy)
    assert stored.read().spec == msgspec.json.decode(policy, type=ClusterPolicy).spec
    assert stored.resource == ClusterPolicy.resource
    other = msgspec.json.decode(driver, type=StoredNVIDIADriver)
    assert other.read().spec == msgspec.json.decode(driver, type=NVIDIADriver).spec
    assert other.resource == NVIDIADriver.resource


def test_reading_names_the_fields_that_have_no_effect() -> None:
    body = changed(stock_policy(), {"spec.driver.colour": "red", "spec.psp.enabled": True})
    read = msgspec.json.decode(encode(body), type=StoredClusterPolicy).read()
    assert (read.unknown, read.ineffective) == (("driver.colour",), ("psp",))


def test_a_spec_is_read_once() -> None:
    body = encode(stock_policy())
    first, second = (msgspec.json.decode(body, type=StoredClusterPolicy) for _ in range(2))
    assert first.read() is first.read() is second.read()
    driver = msgspec.json.decode(encode(stock_driver()), type=StoredNVIDIADriver)
    assert driver.read() is driver.read()


def test_a_stored_object_is_written_as_it_was_read() -> None:
    stored = msgspec.json.decode(encode(stock_policy()), type=StoredClusterPolicy)
    assert msgspec.json.decode(encode(stored))["spec"] == stock_policy()["spec"]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("driver.enabled", "yes", "spec.driver.enabled: this is of type str, and should be bool"),
        ("driver.env", [{"name": "A", "value": 1}], "spec.driver.env[0].value: this is of type int, and should be str"),
        ("driver.env", [{"value": "x"}], "spec.driver.env[0].name: this is missing"),
        ("operator", None, "spec.operator: this is of type null, and should be object"),
        ("mig.strategy", 3, "spec.mig.strategy: this is of type int, and should be str"),
        ("dcgm", [], "spec.dcgm: this is of type array, and should be object"),
        (
            "driver.upgradePolicy.maxUnavailable",
            0.25,
            "spec.driver.upgradePolicy.maxUnavailable: this is of type float, and should be int | str",
        ),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(path: str, value: object, sentence: str) -> None:
    body = changed(stock_policy(), {f"spec.{path}": value})
    stored = msgspec.json.decode(encode(body), type=StoredClusterPolicy)
    with pytest.raises(UnreadableSpec) as complaint:
        stored.read()
    assert str(complaint.value) == sentence


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"{}", "spec.operator: this is missing"),
        (b"[]", "spec: this is of type array, and should be object"),
        (b"", "spec: Input data was truncated"),
        (msgspec.Raw(b'{"operator":1}'), "spec.operator: this is of type int, and should be object"),
    ],
)
def test_a_spec_that_is_none_is_an_error_of_values(raw: bytes | msgspec.Raw, sentence: str) -> None:
    with pytest.raises(ValueError, match="spec") as complaint:
        read_spec(raw, ClusterPolicySpec)
    assert str(complaint.value) == sentence


def test_an_object_without_a_spec_is_held_and_complained_about() -> None:
    stored = msgspec.json.decode(b'{"metadata":{"name":"bare"}}', type=StoredClusterPolicy)
    with pytest.raises(UnreadableSpec, match=r"spec\.operator: this is missing"):
        stored.read()


def test_a_status_written_by_nvidias_operator_is_read() -> None:
    when = "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "Reconciled", "message": "", "lastTransitionTime": when}
    status = {"state": "ready", "namespace": "gpu-operator", "conditions": [ready]}
    stored = msgspec.json.decode(encode({**stock_policy(), "status": status}), type=StoredClusterPolicy)
    assert (stored.status.state, stored.status.namespace) == ("ready", "gpu-operator")
    assert [condition.reason for condition in stored.status.conditions] == ["Reconciled"]
