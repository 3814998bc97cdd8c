"""A card made of the columns that the API server prints says in a table what the whole object says."""

import msgspec
import pytest

from gpu_control_plane.api.gpudevice import DEFINITION, DeviceState, GPUDevice
from gpu_control_plane.kube.client import Printed, PrintedColumn, PrintedRow
from gpu_control_plane.views.cards import card_row
from gpu_control_plane.views.printed_cards import cards_of
from unit.views.builders import card

SHOWN = ("name", "node", "address", "product", "state", "pool", "reason", "load")


def printed(given: GPUDevice) -> Printed:
    """As the API server does it: a cell for each column of the CRD, None where the path leads nowhere."""
    document = msgspec.to_builtins(given)
    return Printed(
        [PrintedColumn("Name"), *(PrintedColumn(column.name) for column in DEFINITION.columns)],
        [PrintedRow([given.name, *(_cell(document, column.path) for column in DEFINITION.columns)])],
    )


def _cell(document: object, path: str) -> str | int | None:
    if "?" in path:
        return None
    for step in path.strip(".").replace("[", ".[").split("."):
        try:
            document = document[int(step[1:-1])] if step.startswith("[") else document[step]  # type: ignore[index]
        except (KeyError, IndexError):
            return None
    return document  # type: ignore[return-value]


@pytest.mark.parametrize(
    "given",
    [
        card(pods=("team-a/x",), utilisation=98),
        card(pods=("team-a/x", "team-b/y"), utilisation=0),
        card(pods=("team-a/x",)),
        card(),
        card(state=DeviceState.FAULTED),
        card(state=DeviceState.UNASSIGNED, pool=None, pending="AwaitingApproval"),
        card(state=None, pool=None),
    ],
)
def test_what_a_table_shows_is_the_same(given: GPUDevice) -> None:
    found = cards_of(printed(given))
    assert found is not None
    whole, short = card_row(given), card_row(found[0])
    assert [getattr(short, field) for field in SHOWN] == [getattr(whole, field) for field in SHOWN]
    assert [str(user) for user in short.users] == [str(user) for user in whole.users[:1]]


def test_columns_of_another_release_are_not_taken_for_cards() -> None:
    assert cards_of(Printed([PrintedColumn("Name")], [PrintedRow(["x"])])) is None
