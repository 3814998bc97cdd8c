"""Texts that Kubernetes, Go and Ray read in a way of their own."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.rules.ray.texts import at_least, duration, is_label_key, is_label_value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), (".5s", 0.5), ("-5m", -300), ("0", 0), ("+5m", 300)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "5 m", "1h-5m", "5d", "--5m", "+", "1e3s", "9" * 40])
def test_no_durations(text: str) -> None:
    assert duration(text) is None


@given(st.text())
def test_any_text_may_be_asked_for_its_duration(text: str) -> None:
    assert duration(text) is None or isinstance(duration(text), timedelta)


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("2.52.0", True),
        ("2.52", True),
        ("v2.53.1", True),
        ("3.0.0", True),
        ("2.52.0.dev1", True),
        ("2.51.9", False),
        ("", False),
        ("nightly", False),
        ("2", False),
    ],
)
def test_versions_of_ray(version: str, enough: bool) -> None:
    assert at_least(version, (2, 52, 0)) is enough


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("team", True),
        ("ray.io/region", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-a", False),
        ("Ray.io/a", False),
        ("a/b/c", False),
        ("", False),
        (f"{'a' * 254}/b", False),
    ],
)
def test_keys_of_labels(key: str, right: bool) -> None:
    assert is_label_key(key) is right


@pytest.mark.parametrize(("value", "right"), [("", True), ("a_b.c-d", True), ("a" * 64, False), ("a-", False)])
def test_values_of_labels(value: str, right: bool) -> None:
    assert is_label_value(value) is right
