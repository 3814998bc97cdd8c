"""Quantities are read as the API server writes them, and as people do."""

from decimal import Decimal

import pytest

from gpu_control_plane.kube.quantities import parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0"),
        ("8", "8"),
        ("-2", "-2"),
        ("+2", "2"),
        ("0.5", "0.5"),
        ("500m", "0.5"),
        ("1k", "1000"),
        ("2M", "2000000"),
        ("1Ki", "1024"),
        ("1.5Gi", "1610612736"),
        ("1E", "1e18"),
        ("1Ei", str(2**60)),
        ("1e3", "1000"),
        ("12E2", "1200"),
        ("5e-1", "0.5"),
        ("100n", "1e-7"),
        ("3.", "3"),
        (".5", "0.5"),
    ],
)
def test_a_quantity_is_a_number(text: str, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "k", "1K", "1 k", "1kk", "1e", "one", "1,5", "nan", "\u0661"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
