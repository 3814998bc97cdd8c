"""Prometheus can read whatever simulated cards measure."""

import pytest

from gpu_control_plane.agent.exporter.exposition import Series, exposition
from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import new_machine
from gpu_control_plane.agent.simulated.models import PROFILES
from unit.agent.exporter.readings import read


@pytest.mark.parametrize("profile", PROFILES)
def test_every_sample_of_a_simulated_card_is_a_number(profile: str) -> None:
    machine = new_machine(profile, 1)
    backend = SimulatedBackend("node-1", machine)
    samples = backend.samples(machine.addresses[0])
    assert read(exposition([Series("", samples)])) == {name: [({}, value)] for name, value in samples.items()}
