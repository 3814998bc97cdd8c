"""Label values are valid whatever a card or node is called, and different names stay different."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.inventory.cards import label_value

VALID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NVIDIA H200", "NVIDIA-H200"),
        ("NVIDIA GeForce RTX 3060 (Laptop)", "NVIDIA-GeForce-RTX-3060-Laptop"),
        ("", "unknown"),
        ("***", "unknown"),
        ("worker-3.example.com", "worker-3.example.com"),
    ],
)
def test_names_stay_readable(text: str, value: str) -> None:
    assert label_value(text) == value


@given(st.text(max_size=300))
def test_every_value_is_valid(text: str) -> None:
    assert VALID.fullmatch(label_value(text))


def test_long_names_stay_apart() -> None:
    assert label_value("n" * 100 + "1") != label_value("n" * 100 + "2")
