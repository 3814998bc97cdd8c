"""The hardware document: what it says, and how it changes."""

import msgspec
import pytest

from gpu_control_plane.agent.simulated.backend import SimulatedBackend
from gpu_control_plane.agent.simulated.machine import (
    HARDWARE,
    CardHistory,
    Machine,
    SimulationError,
    boot_id,
    break_memory,
    card_ids,
    heal,
    lose,
    new_machine,
    pull,
    read_machine,
    reinstall,
    report_xid,
    reset,
    slow_down,
    swap,
    wear_out,
    write_machine,
)
from gpu_control_plane.agent.simulated.models import PROFILES, pci_address
from gpu_control_plane.api.examples import h200
from gpu_control_plane.api.gpudevice import Hardware

AT = pci_address(0)


def first_card(machine: Machine) -> Hardware:
    return SimulatedBackend("worker-3", machine).cards()[0]


def test_an_h200_is_what_a_real_one_says_of_itself() -> None:
    cards = SimulatedBackend("worker-3", new_machine("H200-141", 8)).cards()
    assert cards == tuple(h200("worker-3", index) for index in range(8))


@pytest.mark.parametrize(
    ("profile", "capability", "memory", "largest"),
    [
        ("A100-80", "8.0", 81920, "7g.80gb"),
        ("H100-80", "9.0", 81559, "7g.80gb"),
        ("H200-141", "9.0", 143771, "7g.141gb"),
        ("L40S", "8.9", 46068, None),
        ("RTX-3060", "8.6", 12288, None),
    ],
)
def test_each_profile_tells_the_facts_of_its_model(
    profile: str, capability: str, memory: int, largest: str | None
) -> None:
    card = first_card(new_machine(profile, 8))
    assert (card.compute_capability, card.memory_mib) == (capability, memory)
    assert (card.mig.profiles[-1].name if card.mig else None) == largest
    assert len(card.nvlink_peers) == (7 if largest else 0)


def test_instances_fit_into_the_memory_of_their_card() -> None:
    for profile in PROFILES.values():
        for instance in profile.mig.profiles if profile.mig else ():
            assert instance.count * instance.memory_mib <= profile.memory_mib
            assert all(start + instance.slices <= 8 for start in instance.starts)


def test_a_document_survives_being_written_and_read() -> None:
    machine = slow_down(report_xid(swap(new_machine("L40S", 2), AT), AT, 79), 3)
    assert read_machine("worker-3", {HARDWARE: write_machine(machine)}) == machine
    assert write_machine(new_machine("L40S", 2)) == '{"profile":"L40S","cards":2}'


@pytest.mark.parametrize("text", ["", "{}", '{"profile":"Voodoo","cards":1}', '{"profile":"L40S","cards":99}'])
def test_a_document_that_makes_no_sense_is_refused_with_the_name_of_its_node(text: str) -> None:
    with pytest.raises(SimulationError, match="of node worker-3 cannot be understood"):
        read_machine("worker-3", {HARDWARE: text})


def test_a_node_without_the_document_has_no_cards() -> None:
    assert read_machine("worker-3", {}) is None


def test_a_swapped_card_is_another_card_without_the_faults_of_the_old_one() -> None:
    broken = lose(report_xid(new_machine("H200-141", 8), AT, 79), AT)
    swapped = swap(broken, AT)
    assert first_card(swapped).uuid != first_card(broken).uuid
    assert first_card(swap(swapped, AT)).uuid != first_card(swapped).uuid
    assert swapped.of(AT) == CardHistory(swapped=1)


def test_healing_leaves_nothing_in_the_document() -> None:
    new = new_machine("H200-141", 8)
    assert heal(break_memory(lose(pull(new, AT), AT), AT), AT) == new


def test_a_reset_forgets_errors_but_brings_no_lost_card_back() -> None:
    machine = reset(lose(break_memory(report_xid(new_machine("H200-141", 8), AT, 62), AT), AT), AT)
    assert machine.of(AT) == CardHistory(lost=True, resets=1)


def test_a_reset_brings_spare_rows_into_use_where_there_are_any() -> None:
    worn = wear_out(wear_out(new_machine("H200-141", 1), AT, failed=False), AT, failed=True)
    assert worn.of(AT) == CardHistory(remap_pending=True, remap_failed=True)
    assert reset(worn, AT).of(AT) == CardHistory(remap_failed=True, resets=1)


def test_a_lost_card_is_still_there_and_a_pulled_one_is_not() -> None:
    new = new_machine("H200-141", 2)
    lost, pulled = SimulatedBackend("n", lose(new, AT)), SimulatedBackend("n", pull(new, AT))
    assert (len(lost.cards()), lost.facts().bus_cards) == (2, 2)
    assert (len(pulled.cards()), pulled.facts().bus_cards) == (1, 1)
    assert pulled.cards()[0].nvlink_peers == ()


def test_reinstalling_changes_the_boot_id_and_no_card() -> None:
    machine = new_machine("H200-141", 8)
    again = reinstall(machine)
    assert boot_id("worker-3", again) != boot_id("worker-3", machine)
    assert first_card(again) == first_card(machine)


def test_cards_are_found_by_the_name_of_their_gpudevice() -> None:
    assert card_ids("worker-3", new_machine("L40S", 1)) == {"worker-3-0000-18-00-0": AT}


@pytest.mark.parametrize("code", [0, -1, 65536])
def test_a_code_that_is_no_xid_is_refused(code: int) -> None:
    with pytest.raises(SimulationError, match="is no XID"):
        report_xid(new_machine("L40S", 1), AT, code)


def test_the_document_stays_small_however_many_errors_are_reported() -> None:
    machine = new_machine("L40S", 1)
    for code in range(1, 100):
        machine = report_xid(machine, AT, code)
    assert machine.of(AT).xids[-1] == 99
    assert len(msgspec.json.encode(machine)) < 200
