"""One step of a node: `decide(snapshot, memory)` says what to do now. Pure, and the only way to these decisions.

The agent of a real node, the simulated fleet and the tests with random histories all carry out what this function says.
The questions come in a fixed order: is the driver free to be used, how healthy are the cards, who holds what, how are
cards to be partitioned, which units join and leave, what are the kubelet and the API server told. Everything is derived
anew each time; what is remembered between two steps only ever delays a release.
"""

from collections import defaultdict
from collections.abc import Set
from typing import Final

import msgspec

from gpu_control_plane.agent.cdi.container_allocation import device_name
from gpu_control_plane.agent.hardware_snapshot import HardwareSnapshot
from gpu_control_plane.agent.kubelet.interface import Device
from gpu_control_plane.agent.mig.apply import PartitionTask
from gpu_control_plane.agent.step import burn_in, partitioning
from gpu_control_plane.agent.step.advertising import (
    Advertised,
    allocatable_units,
    inherited,
    next_advertising,
    plugin_status,
)
from gpu_control_plane.agent.step.card_health import judge_cards
from gpu_control_plane.agent.step.conflicting_plugins import OwnResources, conflicting_resources, own_resources
from gpu_control_plane.agent.step.desired_units import desired_units, mig_targets, order_problems, usable_cards
from gpu_control_plane.agent.step.device_reports import device_reports
from gpu_control_plane.agent.step.holds import (
    checkpoint_rewrite,
    doubt_look_again,
    forgotten_since,
    hold_problems,
    pod_holds,
    withheld_units,
)
from gpu_control_plane.agent.step.pausing import pause_reason
from gpu_control_plane.agent.step.plan import Allocatable, DeviceReport, NodePlan, Stage
from gpu_control_plane.agent.step.pod_allocations import card_refs, pod_allocations
from gpu_control_plane.agent.step.snapshot import CheckpointRewrite, KubeletSnapshot, NodeMemory, NodeSnapshot
from gpu_control_plane.agent.units import CardID, ResourceName, Unit
from gpu_control_plane.agent.vendors.registry import supports_of
from gpu_control_plane.api.gpunodestate import OrderProblem
from gpu_control_plane.api.scheduling import NUMA

_KUBELET_RETRY_SECONDS: Final = 1.0
"""Time until a kubelet that did not answer is asked again."""
_SETTLE_SECONDS: Final = 1.0
"""Time until the kubelet's lists are read again while they are about to change: it reports no change by itself."""


def decide(snapshot: NodeSnapshot, memory: NodeMemory) -> NodePlan:
    """What to do now, and what to remember."""
    paused = pause_reason(snapshot.node.metadata.labels)
    hardware = snapshot.hardware
    if hardware is None:
        return NodePlan(stage=Stage.UNPROBED, memory=memory, paused=paused)
    plan = _judged(snapshot, hardware, memory, paused)
    if snapshot.kubelet is None:
        reports = _reports(snapshot, hardware, plan.memory) if paused is None else ()
        return msgspec.structs.replace(
            plan, stage=Stage.KUBELET_AWAY, reports=reports, look_again=_KUBELET_RETRY_SECONDS
        )
    return _Step(snapshot, hardware, snapshot.kubelet, plan).decide()


def _judged(snapshot: NodeSnapshot, hardware: HardwareSnapshot, memory: NodeMemory, paused: str | None) -> NodePlan:
    """The beginning of every plan: what the last probe means for the cards, if it has not been judged yet."""
    is_new = hardware.probe != memory.judged_probe
    repaired = hardware.cleared if is_new else frozenset()
    tested = burn_in.known_results(memory.tested, snapshot.burn_in.ended, snapshot.devices, repaired)
    memory = msgspec.structs.replace(memory, tested=tested)
    if not is_new:
        return NodePlan(stage=Stage.COMPLETE, memory=memory, paused=paused)
    judged = judge_cards(
        hardware, snapshot.devices, memory, now=snapshot.now.timestamp(), policy=snapshot.settings.recovery
    )
    return NodePlan(
        stage=Stage.COMPLETE,
        memory=msgspec.structs.replace(
            memory,
            health=judged.health,
            verdicts=judged.verdicts,
            notices=judged.notice_memory,
            judged_probe=hardware.probe,
        ),
        paused=paused,
        notices=judged.notices,
        clear_errors=judged.clear_errors,
        next_probe=judged.next_probe,
    )


def _reports(snapshot: NodeSnapshot, hardware: HardwareSnapshot, memory: NodeMemory) -> tuple[DeviceReport, ...]:
    """The cards to write. While the kubelet is away their users are those that were last known."""
    if memory.users is None:
        return ()
    return tuple(device_reports(snapshot, hardware, memory, memory.users))


_PERHAPS: Final = "perhaps an init container"


class _Step:
    """A step on a node whose hardware and kubelet have answered."""

    def __init__(
        self, snapshot: NodeSnapshot, hardware: HardwareSnapshot, kubelet: KubeletSnapshot, plan: NodePlan
    ) -> None:
        self._snapshot = snapshot
        self._hardware = hardware
        self._kubelet = kubelet
        self._plan = plan
        self._memory = plan.memory
        refs = card_refs(snapshot.devices, hardware)
        self._allocations = pod_allocations(kubelet.allocations, refs)
        self._pod_holds = pod_holds(kubelet, self._allocations, refs, self._memory.holds)
        self._cards = usable_cards(hardware, snapshot.devices)
        self._advertised: Advertised = self._memory.advertised or {}
        self._held = self._held_units()
        self._used = self._held.keys() - self._perhaps_held()

    def decide(self) -> NodePlan:
        now = self._snapshot.monotonic
        since = forgotten_since(self._pod_holds, self._memory.forgotten_since, now)
        self._remember(users=self._allocations.users, holds=self._pod_holds.holds, forgotten_since=since)
        if self._plan.paused is not None:
            return self._advertise(set(self._advertised))
        tasks = self._partition() if not self._snapshot.driver_hung else ()
        if tasks:
            return msgspec.structs.replace(
                self._plan, stage=Stage.PARTITION, memory=self._memory, partition=tasks, look_again=0.0
            )
        self._burn_in()
        return self._advertise(self._desired())

    def _held_units(self) -> dict[Unit, str]:
        """What must not be given to another pod, and who has it. The kubelet lists an allocation only after Allocate
        has returned, and no init containers: where its checkpoint does not tell, these may have anything."""
        held = self._allocations.held
        for hold in self._pod_holds.in_order:
            held.setdefault(hold.unit, hold.pod)
        for unit in self._kubelet.in_flight:
            held.setdefault(unit, "a pod that is starting")
        if self._kubelet.checkpoint is None:
            for unit in self._advertised:
                held.setdefault(unit, _PERHAPS)
        return held

    def _perhaps_held(self) -> Set[Unit]:
        """What is held only because the checkpoint does not tell. It is not counted as in use."""
        return {unit for unit, pod in self._held.items() if pod is _PERHAPS}

    def _partition(self) -> tuple[PartitionTask, ...]:
        """MIG: what has to be tried now on cards that are not partitioned as ordered."""
        now = self._snapshot.monotonic
        targets = mig_targets(self._snapshot.orders, self._cards)
        attempts = partitioning.recorded(self._memory.attempts, self._snapshot.partitioned, now)
        self._remember(attempts={card: attempt for card, attempt in attempts.items() if card in targets})
        tasks = (
            partitioning.partition_task(target, self._cards[card], self._advertised.keys(), self._held)
            for card, target in targets.items()
        )
        return tuple(task for task in tasks if partitioning.is_due(task, self._memory.attempts, now))

    def _burn_in(self) -> None:
        """How far each card is; tests are due on cards that no pod and no pool needs."""
        tests, orders = self._snapshot.burn_in, self._snapshot.orders
        # Before the first step it is not known what an earlier agent still advertises.
        advertised = (
            {unit.card for unit in self._advertised} if self._memory.advertised is not None else set(self._cards)
        )
        needed = advertised | {unit.card for unit in self._held}
        obstacles = {
            card.id: sentence
            for card in self._hardware.observed.values()
            if (
                sentence := burn_in.test_obstacle(
                    card,
                    orders,
                    usable=self._cards.keys(),
                    needed=needed,
                    healthy=self._is_healthy(card.id),
                    checked=tests.checked,
                )
            )
        }
        tested = self._memory.tested
        found = burn_in.burn_ins(self._snapshot, self._hardware, tested, obstacles)
        known = {status.record.uuid: status for status in found.values() if status is not None}
        self._remember(burn_ins=found, tested={**tested, **known})

    def _desired(self) -> set[Unit]:
        """The units to advertise: what a container can really be given, without cards that have to be tested first."""
        units = desired_units(
            self._snapshot.orders,
            self._cards,
            partitioning.geometries(self._memory.attempts),
            self._snapshot.settings.unpooled,
        )
        withheld = burn_in.withheld_cards(self._memory.burn_ins, self._snapshot.orders)
        injectable = self._snapshot.injectable
        return {unit for unit in units if device_name(unit.id) in injectable and unit.card not in withheld}

    def _advertise(self, desired: Set[Unit]) -> NodePlan:
        """The lists for the kubelet, and `status.plugin`."""
        snapshot, paused = self._snapshot, self._plan.paused is not None
        own = self._inherit(desired)
        advertising = next_advertising(
            desired,
            self._advertised,
            self._held.keys(),
            allocatable={unit for unit in self._advertised if self._is_allocatable(unit)},
            now=snapshot.monotonic,
        )
        advertised = advertising.advertised
        own = own_resources(own, (unit.resource for unit in advertised), snapshot.monotonic)
        unpooled = snapshot.settings.unpooled
        conflicts = conflicting_resources(
            snapshot.node.status.allocatable,
            own.keys() | ({unpooled} if unpooled else set()),
            supports_of(self._hardware.cards()),
            snapshot.settings.conflicting_resources,
        )
        healthy = {card for card in self._cards if self._is_healthy(card)}
        withheld = withheld_units(self._memory.forgotten_since, snapshot.monotonic)
        nothing = paused or conflicts or snapshot.driver_hung
        units = set() if nothing else allocatable_units(desired, advertised, healthy) - withheld
        rewrite = self._checkpoint_rewrite(advertised)
        send_again = rewrite is not None and rewrite is not self._memory.checkpoint_rewrite
        self._remember(
            advertised=advertised,
            own_resources=own,
            unconfirmed_since=self._unconfirmed_since(units),
            checkpoint_rewrite=rewrite,
        )
        return msgspec.structs.replace(
            self._plan,
            stage=Stage.COMPLETE,
            memory=self._memory,
            cdi_held=frozenset(device_name(unit.id) for unit in self._held),
            allocatable=Allocatable(
                units=frozenset(units),
                held=frozenset(self._held),
                holds=self._pod_holds.holds,
                numa_ignored=self._numa_ignored(),
            ),
            kubelet_first=advertising.removed or paused,
            device_lists=self._device_lists(units),
            send_again=send_again,
            plugin=msgspec.structs.replace(
                plugin_status(advertised, units, snapshot.generation, unpooled=unpooled),
                used=sum(unit in self._used for unit in advertised),
                free=len(units - self._used),
                problems=self._problems(),
                conflicts=conflicts,
                driver_hung=snapshot.driver_hung or None,
            ),
            carried_out=None if advertising.removed else snapshot.generation,
            removed=advertising.removed,
            reports=_reports(snapshot, self._hardware, self._memory) if not paused else (),
            burn_ins=self._memory.burn_ins,
            burn_in_starts=burn_in.to_start(self._memory.burn_ins, snapshot.burn_in.running) if not paused else {},
            holders=self._allocations.holders,
            held=self._held,
            look_again=self._look_again(advertising.look_again),
        )

    def _inherit(self, desired: Set[Unit]) -> OwnResources:
        """At the first step: what the agent before us left behind. The Node may still show all of its resources."""
        if self._memory.advertised is not None:
            return self._memory.own_resources
        reported = self._snapshot.state.status.plugin if self._snapshot.state else None
        self._advertised = inherited(reported, desired)
        names = (resource.name for resource in (reported.resources if reported else ()))
        return own_resources(self._memory.own_resources, names, self._snapshot.monotonic)

    def _device_lists(self, allocatable: Set[Unit]) -> dict[ResourceName, tuple[Device, ...]]:
        lists: dict[ResourceName, list[Device]] = defaultdict(list)
        ignored = self._numa_ignored()
        for unit in self._memory.advertised or ():
            card = self._hardware.observed.get(unit.card)
            numa = card.hardware.numa_node if card and unit.card not in ignored else None
            lists[unit.resource].append(Device(unit.id, unit in allocatable, numa))
        return {resource: tuple(devices) for resource, devices in lists.items()}

    def _numa_ignored(self) -> frozenset[CardID]:
        return frozenset(order.inventory_id for order in self._snapshot.orders if order.numa is NUMA.IGNORED)

    def _problems(self) -> tuple[OrderProblem, ...]:
        """Orders that are not carried out as they stand, one problem a card."""
        of_mig = partitioning.partition_problems(self._memory.attempts) if self._plan.paused is None else ()
        of_orders = order_problems(self._snapshot.orders, self._cards)
        of_holds = hold_problems(self._memory.forgotten_since)
        problems = {problem.inventory_id: problem for problem in (*of_holds, *of_mig, *of_orders)}
        return tuple(problems[card] for card in sorted(problems))

    def _checkpoint_rewrite(self, advertised: Advertised) -> CheckpointRewrite | None:
        """Only a kubelet that is sent lists can be made to write its checkpoint."""
        if not advertised:
            return None
        last, now = self._memory.checkpoint_rewrite, self._snapshot.monotonic
        return checkpoint_rewrite(self._pod_holds, self._kubelet, last, now)

    def _unconfirmed_since(self, allocatable: Set[Unit]) -> float | None:
        """The kubelet confirms nothing: whether it has taken a list in shows only in what it calls allocatable."""
        if all(self._is_allocatable(unit) for unit in allocatable):
            return None
        since = self._memory.unconfirmed_since
        return self._snapshot.monotonic if since is None else since

    def _look_again(self, advertising: float | None) -> float | None:
        retry = partitioning.retry_after(self._memory.attempts) if self._plan.paused is None else None
        now, since, rewrite = self._snapshot.monotonic, self._memory.unconfirmed_since, self._memory.checkpoint_rewrite
        unconfirmed = since is not None and now < since + self._snapshot.settings.confirm_seconds
        settling = unconfirmed or bool(self._kubelet.in_flight) or bool(self._pod_holds.forgotten)
        doubt = doubt_look_again(self._pod_holds, self._kubelet, rewrite, now)
        waits = (advertising, retry, doubt, _SETTLE_SECONDS if settling else None)
        return min((wait for wait in waits if wait is not None), default=None)

    def _is_allocatable(self, unit: Unit) -> bool:
        """Whether the kubelet may allocate the unit."""
        return unit.id in self._kubelet.allocatable.get(unit.resource, ())

    def _is_healthy(self, card: CardID) -> bool:
        verdict = self._memory.verdicts.get(card)
        return verdict is not None and verdict.healthy

    def _remember(self, **changes: object) -> None:
        self._memory = msgspec.structs.replace(self._memory, **changes)
