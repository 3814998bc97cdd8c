"""Hardware that a person describes by hand, well or badly."""

from pathlib import Path
from typing import cast

import msgspec
import pytest
import structlog

from gpu_control_plane.agent.backends.interface import BackendError
from gpu_control_plane.agent.node.options import Options
from gpu_control_plane.agent.node.simulation import Simulation
from gpu_control_plane.agent.simulated.machine import HARDWARE, pull, write_machine
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.kube.cache import Cache
from gpu_control_plane.kube.objects import ObjectMeta
from unit.agent.step.builders import NODE, machine

GOOD = write_machine(machine())
NONSENSE = ("", "{", "null", '{"profile": "Voodoo2", "cards": 2}', GOOD.replace("2}", '2, "slowSeconds": -1}'))


class Nodes:
    """The Node and its watchers."""

    def __init__(self, text: str | None) -> None:
        self.node = node(text)

    def on_change(self, handler: object) -> None:
        self.handler = handler

    def get(self, _name: str) -> NodeView:
        return self.node

    def change(self, text: str) -> None:
        before, self.node = self.node, node(text)
        self.handler(before, self.node)  # type: ignore[operator]


def node(text: str | None) -> NodeView:
    annotations = {} if text is None else {HARDWARE: text}
    return NodeView(metadata=ObjectMeta(name=NODE, annotations=annotations))


def simulation(nodes: Nodes, folder: Path) -> Simulation:
    options = Options(node=NODE, simulated_devices=folder)
    return Simulation(options, cast("Cache[NodeView]", nodes))


@pytest.mark.parametrize("text", NONSENSE)
def test_what_makes_no_sense_is_told_once_and_changes_nothing(tmp_path: Path, text: str) -> None:
    nodes = Nodes(GOOD)
    simulated = simulation(nodes, tmp_path)
    backend = simulated.backend()
    with structlog.testing.capture_logs() as logs:
        nodes.change(text)
        nodes.change(text)
    assert [log["log_level"] for log in logs] == ["warning"]
    assert simulated.backend() is backend
    assert len(backend.cards()) == 2
    nodes.change(write_machine(pull(machine(), machine().addresses[0])))
    assert len(backend.cards()) == 1


@pytest.mark.parametrize("text", [None, *NONSENSE])
def test_without_a_sensible_description_there_is_no_hardware_to_look_at(tmp_path: Path, text: str | None) -> None:
    with pytest.raises(BackendError, match=HARDWARE):
        simulation(Nodes(text), tmp_path).backend()


@pytest.mark.parametrize(
    "change",
    [{"slow_seconds": 3601.0}, {"slow_seconds": float("-inf")}],
)
def test_a_node_is_not_slow_beyond_reason(tmp_path: Path, change: dict[str, float]) -> None:
    text = write_machine(msgspec.structs.replace(machine(), **change))
    with pytest.raises(BackendError):
        simulation(Nodes(text), tmp_path).backend()
