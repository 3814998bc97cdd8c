"""Random histories of a machine: what must hold after each reconcile, and after a crash at each write."""

from datetime import datetime, timedelta

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_control_plane.api import GPUDevice
from gpu_control_plane.api.examples import pci_address
from gpu_control_plane.api.gpudevice import Hardware
from gpu_control_plane.api.names import Annotation, NodeCondition
from gpu_control_plane.api.nodefeature import CARDS, Element, Features, Instances, NodeFeatureSpec
from gpu_control_plane.inventory.report import Report
from gpu_control_plane.kube.conditions import is_true
from gpu_control_plane.rules.node_readiness import is_report_observed
from unit.inventory.model import FACTS, SETTINGS, NodeModel, actions, bare, card

SLOTS = 3
MODELS = ("2335", "2330")

slots = st.integers(0, SLOTS - 1)


class Plugged(msgspec.Struct, frozen=True):
    """The card that is really in a slot."""

    uuid: str
    model: str


class MachineHistory(RuleBasedStateMachine):
    """`slots` are the cards that are really in the machine; `model` is what was reported of them and written."""

    def __init__(self) -> None:
        super().__init__()
        self.model = NodeModel()
        self.slots: dict[int, Plugged] = {}
        self.driver = True
        self.cards_made = 0
        self.nothing_there_since: datetime | None = None

    @rule(slot=slots, model=st.sampled_from(MODELS))
    def plug(self, slot: int, model: str) -> None:
        """A card is put in, or exchanged."""
        self.cards_made += 1
        self.slots[slot] = Plugged(f"GPU-{self.cards_made}", model)

    @rule(slot=slots)
    def pull(self, slot: int) -> None:
        self.slots.pop(slot, None)

    @rule(slot=slots, free=slots)
    def move(self, slot: int, free: int) -> None:
        """A card is put into another slot, if that is free."""
        if slot in self.slots and free not in self.slots:
            self.slots[free] = self.slots.pop(slot)

    @rule(there=st.booleans())
    def change_driver(self, there: bool) -> None:
        self.driver = there

    @rule(overlooked=st.sets(slots, max_size=1), placed=st.booleans())
    def report(self, overlooked: set[int], placed: bool = True) -> None:
        """The agent reports. It may fail to read a card that is on the bus, and it may not be allowed to read the
        addresses on the bus."""
        seen = [self._card(slot) for slot in self.slots if slot not in overlooked]
        places = tuple(self._card(slot).pci for slot in self.slots) if placed else None
        facts = FACTS if self.driver else msgspec.structs.replace(FACTS, driver=None, toolkit=None)
        self.model.report(*seen, bus=len(self.slots), places=places, facts=facts)

    @precondition(lambda self: self.model.feature is not None)
    @rule()
    def report_nonsense(self) -> None:
        nonsense = Features(instances={CARDS: Instances(elements=(Element(attributes={"vendor": "x"}),))})
        self.model.publish(NodeFeatureSpec(features=nonsense))

    @rule()
    def stop_reporting(self) -> None:
        self.model.feature = None

    @rule(there=st.booleans())
    def register(self, there: bool) -> None:
        self.model.node_exists = there

    @rule(minutes=st.integers(1, 8))
    def wait(self, minutes: int) -> None:
        self.model.time += timedelta(minutes=minutes)

    @precondition(lambda self: self.model.devices)
    @rule(data=st.data())
    def ignore(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.model.addresses)))
        self.model.ignore(address, data.draw(st.sampled_from(("true", "false"))))

    @precondition(lambda self: self.model.devices)
    @rule(data=st.data())
    def approve(self, data: st.DataObject) -> None:
        self.model.approve(data.draw(st.sampled_from(sorted(self.model.addresses))))

    @rule(crash_after=st.integers(0, 10))
    def reconcile(self, crash_after: int) -> None:
        """A reconcile after a crash ends where a reconcile without the crash would have ended."""
        before = dict(self.model.devices)
        self._watch_the_clock()
        whole, broken = self.model.copy(), self.model.copy()
        whole.settle()
        for action in list(actions(broken.plan()))[:crash_after]:
            broken.execute(action)
            _check_promise(broken)
        broken.settle()
        assert broken.objects == whole.objects
        self.model = broken
        for device in before.values():
            self._check(device, before)

    @invariant()
    def a_settled_node_asks_for_nothing(self) -> None:
        settled = self.model.copy()
        settled.settle()
        assert settled.plan().settled

    @invariant()
    def every_report_is_observed_in_the_end(self) -> None:
        """Else bootstrap and pools would wait for ever. While the Node is gone they do not ask."""
        settled = self.model.copy()
        settled.settle()
        if settled.state is not None and settled.node_exists:
            assert is_report_observed(settled.state.status, settled.feature, settled.devices.get)

    @invariant()
    def a_status_promises_no_more_than_the_report_that_it_rests_on(self) -> None:
        _check_promise(self.model)

    def _check(self, device: GPUDevice, before: dict[str, GPUDevice]) -> None:
        """Check what became of a card against the evidence that the report gave."""
        after = self.model.devices.get(device.name)
        if after is None:
            assert self._was_gone(device), f"{device.name} was deleted without proof"
            return
        kept = Annotation.ASSIGNMENT in after.metadata.annotations
        if self._was_exchanged(device, {_uuid(one) for one in before.values()}):
            origins = (one for one in before.values() if one is not device and _uuid(one) == _uuid(after))
            approved = any(Annotation.ASSIGNMENT in one.metadata.annotations for one in origins)
            assert approved or not kept, f"{device.name}: a card has an approval that was not its own"
            return
        had = Annotation.ASSIGNMENT in device.metadata.annotations
        assert kept == had, f"{device.name}: approval {'given' if kept else 'dropped'}"

    def _was_gone(self, device: GPUDevice) -> bool:
        since, report = self.nothing_there_since, self.model.snapshot().report
        if since is not None:
            return self.model.time - since >= SETTINGS.node_grace_period
        if not isinstance(report, Report):
            return False
        if _uuid(device) in {one.uuid for one in report.cards if one.uuid}:
            return True
        there = {one.pci.address for one in report.cards} | {one.address for one in report.bus or ()}
        return (report.complete or report.bus is not None) and device.spec.pci_address not in there

    def _was_exchanged(self, device: GPUDevice, known_uuids: set[str | None]) -> bool:
        report, known = self.model.snapshot().report, device.status.hardware
        if not self.model.node_exists or not isinstance(report, Report):
            return False
        seen = next((one for one in report.cards if one.pci.address == device.spec.pci_address), None)
        if seen is None:
            return False
        if known is None:  # Only the bus showed a card here; one that was known duplicates has taken its place.
            return seen.uuid is not None and seen.uuid in known_uuids
        if seen.uuid and known.uuid:
            return seen.uuid != known.uuid
        return seen.pci.device != known.pci.device

    def _watch_the_clock(self) -> None:
        """The grace period runs from the first reconcile that finds nothing to the first that finds something."""
        report = self.model.snapshot().report
        empty = isinstance(report, Report) and not report.facts.bus_cards
        if self.model.node_exists and not empty:
            self.nothing_there_since = None
        elif self.nothing_there_since is None and self.model.devices:
            self.nothing_there_since = self.model.time

    def _card(self, slot: int) -> Hardware:
        plugged = self.slots[slot]
        if not self.driver:
            return bare(slot, plugged.model)
        pci = msgspec.structs.replace(card(slot).pci, device=plugged.model)
        return card(slot, plugged.uuid, pci=pci, product=f"NVIDIA {plugged.model}")

    def teardown(self) -> None:
        """Whatever happened: a machine that exists and reports everything is known as it is."""
        self.model.node_exists, self.driver = True, True
        self.report(set())
        self.reconcile(0)
        if self.slots:
            known = {device.spec.pci_address: device.status.hardware for device in self.model.devices.values()}
            assert known == {pci_address(slot): self._card(slot) for slot in self.slots}


def _check_promise(model: NodeModel) -> None:
    """A status that calls the inventory complete, and that counts as resting on the latest report, names the software
    and the cards of that report. Bootstrap and pools act on it without reading the report."""
    state, report = model.state, model.snapshot().report
    if state is None or not is_true(state.status.conditions, NodeCondition.INVENTORY_COMPLETE):
        return
    if not is_report_observed(state.status, model.feature, model.devices.get):
        return
    assert isinstance(report, Report), "the inventory is called complete by a report that makes no sense, or by none"
    status, facts = state.status, report.facts
    assert (status.driver, status.toolkit, status.monitoring) == (facts.driver, facts.toolkit, facts.monitoring)
    known = {card.pci_address: card.uuid for card in status.devices}
    reported = {card.pci.address: card.uuid for card in report.cards}
    assert all(uuid is None or known.get(address) == uuid for address, uuid in reported.items())
    excused = {device.spec.pci_address for device in model.devices.values() if device.ignored} - reported.keys()
    if report.bus is not None:
        assert {card.address for card in report.bus} <= reported.keys() | excused
    else:
        assert facts.bus_cards - len(reported) <= len(excused)


def _uuid(device: GPUDevice) -> str | None:
    return device.status.hardware.uuid if device.status.hardware is not None else None


TestMachineHistory = MachineHistory.TestCase
TestMachineHistory.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
