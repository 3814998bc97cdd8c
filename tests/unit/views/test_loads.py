"""What a card is doing is one of five words."""

import pytest

from gpu_control_plane.api.gpudevice import BUSY_PERCENT, DeviceState, GPUDevice
from gpu_control_plane.views.loads import Load, load_of
from unit.views.builders import card

HELD = ("team-a/train-0",)


@pytest.mark.parametrize(
    ("given", "load"),
    [
        (card(pods=HELD, utilisation=98), Load.COMPUTING),
        (card(pods=HELD, utilisation=BUSY_PERCENT), Load.COMPUTING),
        (card(pods=HELD, utilisation=BUSY_PERCENT - 1), Load.HELD_IDLE),
        (card(pods=HELD, utilisation=0), Load.HELD_IDLE),
        (card(pods=HELD), Load.HELD),
        (card(), Load.FREE),
        (card(utilisation=0), Load.FREE),
        (card(state=DeviceState.RESERVED), Load.FREE),
        (card(ignored=True), Load.OUT_OF_SERVICE),
        (card(state=DeviceState.FAULTED, pods=HELD, utilisation=98), Load.OUT_OF_SERVICE),
        (card(state=DeviceState.DRAINING), Load.OUT_OF_SERVICE),
        (card(state=DeviceState.DRAINING, pods=HELD, utilisation=98), Load.COMPUTING),
        (card(state=DeviceState.UNASSIGNED, pool=None), Load.OUT_OF_SERVICE),
        (card(state=None, pool=None), Load.OUT_OF_SERVICE),
    ],
)
def test_a_card_has_the_load_that_its_users_and_readings_say(given: GPUDevice, load: Load) -> None:
    assert load_of(given) is load
