"""Releases are put in order before one CRD replaces another."""

import pytest

from gpu_control_plane import __version__
from gpu_control_plane.installation.crds import _order

IN_ORDER = ["0.1.0", "0.2.0.dev3", "0.2.0a1", "0.2.0-beta.2", "0.2.0rc1", "0.2.0", "0.10.0", "1.0.0rc2", "v1.0.0"]


def test_releases_follow_each_other() -> None:
    orders = [_order(version) for version in IN_ORDER]
    assert None not in orders
    assert orders == sorted(orders, key=lambda order: order or ())


def test_this_release_has_a_place_among_them() -> None:
    assert _order(__version__) is not None


@pytest.mark.parametrize("text", ["", "latest", "1.0", "1.0.0-custom"])
def test_other_texts_name_no_release(text: str) -> None:
    assert _order(text) is None
