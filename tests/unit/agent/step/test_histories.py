"""Random histories of a node: orders in every mode, pods, faults, slow kubelets, lost answers and crashes; pods
that are deleted by force, init containers that run again in a new sandbox, checkpoints that the kubelet loses, and a
second agent on the node, of which the lock decides.

Each history is made from a seed by `random`, which is quick enough for thousands of them; a failure prints the seed and
everything that happened. What must hold at every moment is checked after every event.
"""

import random
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import msgspec
import pytest

from gpu_control_plane.agent.node.node_lock import FILE_NAME, NodeLock
from gpu_control_plane.agent.simulated.machine import break_memory, heal, lose, overheat, report_xid, reset
from gpu_control_plane.agent.step import RecoveryPolicy, StepSettings
from gpu_control_plane.agent.step.advertising import UNUSED_CHECK_SECONDS
from gpu_control_plane.agent.step.partitioning import RETRY_SECONDS
from gpu_control_plane.agent.units import Unit, clash
from gpu_control_plane.api.allocation import Mode
from gpu_control_plane.api.gpunodestate import Assignment
from unit.agent.step.builders import exclusive, partitioned, profile_order, time_sliced
from unit.agent.step.node_model import NodeModel

CHUNKS = 10
EVENTS = 12
RESOURCES = ("gpu.deckhouse.io/a", "gpu.deckhouse.io/b", "gpu.deckhouse.io/c")
LAYOUTS = ({"3g_71gb": 2}, {"3g_71gb": 1, "1g_18gb": 3}, {"1g_18gb": 7}, {"4g_71gb": 1, "2g_35gb": 1})
MODELS = ("H200-141", "H200-141", "L40S")
FAULTS = (overheat, lose, break_memory, heal, reset)


class History:
    """One node, and everything that happens to it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        recovery = RecoveryPolicy(seconds=20.0)
        unpooled = self.rng.choice((None, None, "nvidia.com/gpu"))
        self.node = NodeModel(self.rng.choice(MODELS), 2, StepSettings(unpooled=unpooled, recovery=recovery))
        self.folder = folder
        self.node.restart(self.new_lock())
        assert self.lock.take()
        self.waiting: NodeLock | None = None
        """The lock of an agent that was started while another serves the node."""
        self.log: list[str] = []
        self.orders: dict[str, Assignment] = {}
        self.started = 0
        self.unused_since: dict[tuple[str, str], float] = {}
        self.lost_sandboxes: set[str] = set()

    def simulated_burn_in(self, events: int = EVENTS) -> None:
        happenings: tuple[tuple[int, Callable[[], object]], ...] = (
            (8, self.step),
            (5, self.order),
            (5, self.start_pod),
            (2, self.start_init_container),
            (3, self.end_pod),
            (3, self.delete_by_force),
            (2, self.end_processes),
            (2, self.lose_sandbox),
            (1, self.lose_checkpoint),
            (2, self.fault),
            (2, self.crash),
            (1, self.lose_status),
            (1, self.pause),
            (1, self.take_out_of_service),
            (1, self.leave_the_kubelet_alone),
            (1, self.restart_kubelet),
            (2, self.start_second_agent),
            (2, self.replace_lock),
            (2, self.wake_cut_off_agent),
            (1, self.end_agent),
        )
        weights = [weight for weight, _ in happenings]
        for _ in range(events):
            ((_, happen),) = self.rng.choices(happenings, weights)
            happen()
            self.check()
        self.calm_down()

    # What happens

    def step(self) -> None:
        self.node.pass_time(self.rng.choice((0.0, UNUSED_CHECK_SECONDS / 2, UNUSED_CHECK_SECONDS, RETRY_SECONDS, 40.0)))
        if self.rng.random() < 0.3:
            self.node.probe()
        self._step(hears=self.rng.random() < 0.7)

    def _step(self, **how: object) -> None:
        before, node = self.node.advertised, self.node
        allocatable, held = node.allocatable, self.held()
        assert node.agent.is_the_one
        plan = node.step(**how)  # type: ignore[arg-type]
        gone = before - set(plan.memory.advertised or ())
        overruled = {unit for unit in gone if any(clash(unit, other) for other in held)}
        assert not gone & held, "a unit that a pod holds was taken off the list"
        assert not (gone - overruled) & allocatable, "a unit left that the kubelet could still allocate"
        for unit in gone - overruled:
            unused = self.unused_since.get((unit.resource, unit.id), 0.0)
            assert node.monotonic - unused >= UNUSED_CHECK_SECONDS, "a unit left right after its pod"
        self.log.append(f"step {how} -> {plan.stage.name} advertised={_names(node.advertised)} free={node.free}")

    def order(self) -> None:
        card = self.rng.choice(self.node.cards)
        resource = self.rng.choice(RESOURCES)
        kind = self.rng.randrange(6)
        match kind:
            case 0:
                self.orders.pop(card, None)
            case 1 | 2:
                self.orders[card] = exclusive(card, resource)
            case 3:
                self.orders[card] = time_sliced(card, self.rng.choice((2, 3)), resource)
            case 4:
                self.orders[card] = partitioned(card, **self.rng.choice(LAYOUTS))
            case _:
                self.orders[card] = profile_order(card, "1g.18gb", resource)
        self.node.order(*self.orders.values())
        self.log.append(f"order {card}: {self.orders.get(card)}")

    def start_pod(self, *, init: bool = False) -> None:
        """The kubelet allocates by the lists it has taken in, even if the orders have changed since."""
        if not self.node.free:
            return
        resource, unit_id = self.rng.choice(self.node.free)
        if self.node.refused(resource, unit_id):
            self.log.append(f"Allocate refuses {unit_id} of {resource}")
            return
        before = self.in_use()
        self.started += 1
        self.node.allocate(resource, unit_id, f"pod-{self.started}", init=init)
        self.unused_since.pop((resource, unit_id), None)
        self.log.append(f"pod-{self.started} gets {unit_id} of {resource}, init={init}")
        for given, other in product(self.units({(resource, unit_id)}), before):
            assert not clash(given, other), f"{given} was given while {other} was in use"

    def start_init_container(self) -> None:
        """It may take a while until the pod has a sandbox at all."""
        self.start_pod(init=True)
        pod = f"pod-{self.started}"
        if pod in self.node.processes and self.rng.random() < 0.3:
            self.node.end_processes(pod)
            self.lost_sandboxes.add(pod)
            self.log.append(f"{pod} has no sandbox yet")

    def end_pod(self) -> None:
        if not self.node.active:
            return
        pod = self.rng.choice(sorted(self.node.active))
        self.unused(pod)
        self.node.end_pod(pod)
        self.lost_sandboxes.discard(pod)
        self.log.append(f"{pod} ends")

    def delete_by_force(self) -> None:
        """The containers run on. A pod without a sandbox gets no new one."""
        if not self.node.active:
            return
        pod = self.rng.choice(sorted(self.node.active))
        self.unused(pod)
        self.node.delete_by_force(pod)
        self.lost_sandboxes.discard(pod)
        self.log.append(f"{pod} is deleted by force")

    def end_processes(self) -> None:
        """The containers of a pod that was deleted by force end at last."""
        running_on = sorted(self.node.processes.keys() - self.node.active)
        if not running_on:
            return
        pod = self.rng.choice(running_on)
        self.unused(pod)
        self.node.end_processes(pod)
        self.log.append(f"the containers of {pod} end")

    def lose_sandbox(self) -> None:
        """A pod loses its sandbox, or another one gets its new sandbox, in which its init containers run again."""
        if self.lost_sandboxes and self.rng.random() < 0.6:
            pod = self.lost_sandboxes.pop()
            self.log.append(f"{pod} has a new sandbox")
            if pod not in self.node.known:
                return  # The kubelet asks for other devices.
            before = self.in_use()
            self.node.start_processes(pod)
            entry = self.node.known[pod]
            own = self.units({(entry.resource, unit_id) for unit_id in entry.ids})
            for again, other in product(own, before - own):
                assert not clash(again, other), f"{again} is used again while {other} is in use"
            return
        running = sorted(self.node.processes.keys() & self.node.active)
        if running:
            pod = self.rng.choice(running)
            self.unused(pod)
            self.node.end_processes(pod)
            self.lost_sandboxes.add(pod)
            self.log.append(f"{pod} loses its sandbox")

    def lose_checkpoint(self) -> None:
        """A kubelet takes longer to start again than the agent, which every allocation wakes, to make a step."""
        self._step()
        for pod in sorted(self.node.active):
            self.unused(pod)
        self.node.lose_checkpoint()
        self.log.append("the kubelet loses its checkpoint")

    def unused(self, pod: str) -> None:
        """From now on it is right that a unit of this pod is free, if nothing else speaks against it."""
        entry = self.node.known.get(pod) or self.node.processes.get(pod)
        for unit_id in entry.ids if entry else ():
            self.unused_since[entry.resource, unit_id] = self.node.monotonic  # type: ignore[union-attr]

    def fault(self) -> None:
        card = self.rng.choice(self.node.cards)
        address = next(each.spec.pci_address for each in self.node.devices if each.name == card)
        happen = self.rng.choice((*FAULTS, None))
        machine = self.node.backend.machine
        changed = (
            report_xid(machine, address, self.rng.choice((13, 79, 95))) if happen is None else happen(machine, address)
        )
        self.node.backend.update(changed)
        cleared = (card,) if self.rng.random() < 0.2 else ()
        self.node.probe(cleared)
        self.log.append(f"{happen.__name__ if happen else 'xid'} at {card}, cleared={cleared}")
        self._step()

    def crash(self) -> None:
        """The agent is killed: at rest, or after the first of the two writes of a step."""
        if self.rng.random() < 0.5:
            self.node.restart()
            self.log.append("restart")
        else:
            self._step(dies_after=self.rng.choice((0, 1, 2)))

    def lose_status(self) -> None:
        """The GPUNodeState is deleted, and inventory makes another one: the status is gone, the orders come back. An
        agent that was cut off has ended by then."""
        self.node.end_cut_off()
        self.node.restart()
        state = self.node.state
        self.node.state = type(state)(metadata=state.metadata, spec=state.spec)
        self.log.append("status lost")

    def pause(self) -> None:
        paused = not self.node.node.metadata.labels
        self.node.label(**({"nvidia.com/gpu.deploy.driver": "paused-for-driver-upgrade"} if paused else {}))
        self.log.append(f"paused={paused}")
        self._step()

    def take_out_of_service(self) -> None:
        index = self.rng.randrange(len(self.node.devices))
        devices = list(self.node.devices)
        labels = {} if devices[index].metadata.labels else {"gpu.deckhouse.io/ignore": "true"}
        metadata = msgspec.structs.replace(devices[index].metadata, labels=labels)
        devices[index] = msgspec.structs.replace(devices[index], metadata=metadata)
        self.node.devices = tuple(devices)
        self.log.append(f"labels of card {index}: {labels}")

    def leave_the_kubelet_alone(self) -> None:
        self._step(kubelet=False)

    def restart_kubelet(self) -> None:
        self.node.restart_kubelet()
        self.log.append(f"the kubelet restarts and hears {sorted(self.node.heard)}")

    def start_second_agent(self) -> None:
        """It waits for the lock, for as long as another has it."""
        self.waiting = self.waiting or self.new_lock()
        assert not self.waiting.take(), "two agents have the lock"
        self.log.append("a second agent waits")

    def replace_lock(self) -> None:
        """Somebody removes the lock file: another agent takes the lock, and the one before does not know of it yet.
        Meanwhile things go on."""
        (self.folder / FILE_NAME).unlink()
        if self.node.cut_off is not None:
            self.end_cut_off()
        taken, self.waiting = self.waiting or self.new_lock(), None
        assert taken.take()
        self.node.replace(taken)
        self.log.append("the lock is replaced, and another agent serves the node")
        meanwhile = (self.order, self.step, self.start_pod, self.restart_kubelet, self.wake_cut_off_agent)
        for happen in self.rng.choices(meanwhile, k=5):
            happen()
            self.check()

    def wake_cut_off_agent(self) -> None:
        """It looks whether it is the node's agent before it does anything; within 15 s it ends for it is not."""
        cut_off = self.node.cut_off
        if cut_off is None:
            return
        if cut_off.is_the_one:
            self.node.agent, self.node.cut_off = cut_off, self.node.agent
            self._step()
        elif self.rng.random() < 0.5:
            self.end_cut_off()

    def end_cut_off(self) -> None:
        if self.node.cut_off is not None and self.node.cut_off.lock is not None:
            self.node.cut_off.lock.release()
        self.node.end_cut_off()
        self.log.append("the agent that was cut off ends")

    def end_agent(self) -> None:
        """The agent ends, and the one that waits, or a new one, takes over."""
        self.lock.release()
        taken, self.waiting = self.waiting or self.new_lock(), None
        assert taken.take()
        self.node.restart(taken)
        self.log.append("the agent ends, and another one takes over")

    @property
    def lock(self) -> NodeLock:
        assert self.node.agent.lock is not None
        return self.node.agent.lock

    def new_lock(self) -> NodeLock:
        return NodeLock(self.folder, "agent")

    def close(self) -> None:
        for agent in (self.node.agent, self.node.cut_off):
            if agent is not None and agent.lock is not None:
                agent.lock.release()

    # What must hold

    def held(self) -> set[Unit]:
        """What pods have by the kubelet's word, and what is in use."""
        node = self.node
        known = [*node.pods.values(), *(node.known[pod] for pod in node.active if pod in node.known)]
        return self.in_use() | self.units({(entry.resource, each) for entry in known for each in entry.ids})

    def in_use(self) -> set[Unit]:
        """What containers use that run, whoever knows of them."""
        running = self.node.processes.values()
        return self.units({(entry.resource, unit_id) for entry in running for unit_id in entry.ids})

    def units(self, keys: set[tuple[str, str]]) -> set[Unit]:
        node = self.node
        units = node.units | {(hold.unit.resource, hold.unit.id): hold.unit for hold in node.saved}
        return {units[key] for key in keys if key in units}

    def check(self) -> None:
        node, held = self.node, self.held()
        allocatable = node.allocatable
        for one, other in combinations(allocatable | held, 2):
            assert not clash(one, other), f"{one} and {other} could be given to two pods"
        plugin = node.state.status.plugin
        if plugin is not None:
            for resource in plugin.resources:
                assert 0 <= resource.healthy <= resource.units
                assert len(resource.inventory_ids) <= resource.units
        for unit in allocatable - held:
            card = node.hardware.observed.get(unit.card)
            if card is not None and node.sent == node.heard:
                assert card.mig_enabled is (unit.mode is Mode.MIG)

    def calm_down(self) -> None:
        """Nothing happens any more: every order is carried out or explained, and what pods hold is listed."""
        node = self.node
        self.end_cut_off()
        node.label()
        for _ in range(8):
            node.pass_time(40.0)
            node.probe()
            self._step()
            self.check()
        ignored = {each.name for each in node.devices if each.metadata.labels}
        plugin = node.state.status.plugin
        assert plugin is not None
        assert node.plan is not None
        assert set(node.plan.held) <= self.held(), "what nobody has counts as held"
        for pod, entry in node.pods.items():
            assert set(entry.ids) <= node.sent.get(entry.resource, {}).keys(), f"{pod} holds what no list has"
        served = {unit.card for unit in node.allocatable}
        for card in self.orders:
            verdict = node.memory.verdicts.get(card)
            explained = card in node.problems or card in ignored or verdict is None or not verdict.healthy
            waits = any(unit.card == card for unit in self.held())
            assert card in served or explained or waits, f"{card} is silently not served"


def _names(units: set[Unit]) -> list[str]:
    return sorted(f"{unit.resource}={unit.id}" for unit in units)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_gives_a_unit_to_two_pods_or_takes_one_from_its_pod(
    chunk: int, histories: int, tmp_path: Path
) -> None:
    for seed in range(chunk * histories // CHUNKS, (chunk + 1) * histories // CHUNKS):
        history = History(seed, tmp_path)
        try:
            history.simulated_burn_in()
        except AssertionError as error:
            events = "\n  ".join(history.log)
            raise AssertionError(f"seed {seed}: {error}\n  {events}") from error
        finally:
            history.close()
