"""Discovery looks at the bus alone, and speaks only of changes."""

import asyncio
import os
from pathlib import Path

from gpu_control_plane.agent.discovery.bus import BusPoller
from gpu_control_plane.agent.vendors.registry import pci_vendors
from unit.agent.backends.fake_machine import FakeMachine
from waiting import until

CARD = "0000:18:00.0"


async def test_only_a_change_is_told(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    told: list[int] = []
    bus = BusPoller(machine.host, pci_vendors(), lambda: told.append(len(bus.cards or ())))
    await bus.poll()
    await bus.poll()
    assert told == [0], "that there is no card is news once"
    machine.plug(CARD)
    await bus.poll()
    await bus.poll()
    assert told == [0, 1]
    machine.unplug(CARD)
    await bus.poll()
    assert told == [0, 1, 0]


async def test_what_is_no_card_of_a_vendor_we_serve_does_not_count(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.plug(CARD)
    machine.plug("0000:00:02.0", vendor="8086", class_="0300")
    machine.plug("0000:18:00.1", class_="0403")
    bus = BusPoller(machine.host, pci_vendors(), lambda: None)
    await bus.poll()
    assert [card.address for card in bus.cards or ()] == [CARD]


async def test_a_machine_without_a_pci_bus_has_no_card(tmp_path: Path) -> None:
    bus = BusPoller(FakeMachine(tmp_path).host, pci_vendors(), lambda: None)
    (tmp_path / "sys/bus/pci/devices").rmdir()
    await bus.poll()
    assert bus.cards == ()


async def test_a_bus_that_cannot_be_read_is_no_news(tmp_path: Path) -> None:
    """Said to be empty it would take the agent off the node, and its cards with it."""
    machine = FakeMachine(tmp_path)
    machine.plug(CARD)
    told: list[int] = []
    bus = BusPoller(machine.host, pci_vendors(), lambda: told.append(len(bus.cards or ())))
    await bus.poll()
    machine.hide_bus()
    await bus.poll()
    assert (told, [card.address for card in bus.cards or ()]) == ([1], [CARD])


async def test_before_the_bus_was_ever_read_nothing_is_known(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.hide_bus()
    bus = BusPoller(machine.host, pci_vendors(), lambda: None)
    await bus.poll()
    assert bus.cards is None


async def test_a_bus_whose_files_hang_is_noticed(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.plug(CARD)
    bus = BusPoller(machine.host, pci_vendors(), lambda: None, stuck_after=0.05)
    await bus.poll()
    assert bus.problem() is None
    hanging = tmp_path / "sys/bus/pci/devices" / CARD / "vendor"
    content = hanging.read_bytes()
    hanging.unlink()
    os.mkfifo(hanging)
    polling = asyncio.create_task(bus.poll())
    await until(bus.problem)
    assert "a look at the PCI bus has not ended" in (bus.problem() or "")
    await asyncio.to_thread(hanging.write_bytes, content)
    await polling
    assert bus.problem() is None
