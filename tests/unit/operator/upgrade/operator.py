"""The operator as the controller runs it, on the world of the tests: it sees copies of nodes, perhaps old ones, forgets
everything when it dies, and may die after any write."""

import random

from msgspec.structs import replace

from gpu_control_plane.kube.expectations import LostAnswers
from gpu_control_plane.operator.upgrade.actions import Change, Evict, Restart, Wait
from gpu_control_plane.operator.upgrade.node_view import NodeView, Refusal
from gpu_control_plane.operator.upgrade.rollout import rollout
from gpu_control_plane.operator.upgrade.step import step, switch_off
from unit.operator.upgrade.world import NEVER, Conflict, Machine, World

_RETRY = 10.0
_MOST_STEPS = 40


class Unreachable(Exception):
    """The API server has written, and its answer is lost."""


class Killed(Exception):
    """It was the last write of this process."""


class Operator:
    """One life of the process. It dies after `writes` writes. With `stale` its cache is behind at times, and answers to
    its writes are lost."""

    def __init__(self, world: World, rng: random.Random, *, writes: int | None = None, stale: bool = False) -> None:
        self._world = world
        self._rng = rng
        self._left = writes
        self._stale = stale
        self._cache: dict[str, Machine] = dict(world.machines)
        self._lost_answers = LostAnswers()
        self._asked: dict[str, dict[str, float]] = {}
        self._refusals: dict[str, dict[str, Refusal]] = {}
        self._since: dict[str, float] = {}

    def run(self) -> float:
        """Work until there is nothing to do; the moment at which there may be again."""
        until = NEVER
        names = list(self._world.machines)
        first = self._rng.randrange(len(names))
        for name in names[first:] + names[:first]:
            until = min(until, self._advance(name))
        return min(until, self._give_turns())

    def settle(self) -> float:
        """Work until a whole round changes nothing."""
        while True:
            before = self._world.writes
            self.see()
            until = self.run()
            if self._world.writes == before and not self._stale_somewhere():
                return until

    def see(self) -> None:
        """The watch delivers: everything, or, for a stale cache, whatever has arrived by now."""
        for name, machine in self._world.machines.items():
            if not self._stale or self._rng.random() < 0.7:
                self._cache[name] = machine

    def _stale_somewhere(self) -> bool:
        return any(self._cache[name].version != machine.version for name, machine in self._world.machines.items())

    def _advance(self, name: str) -> float:
        known = self._world.waits(self._cache[name])
        if known is not None and name not in self._asked and name not in self._refusals:
            return known
        for _ in range(_MOST_STEPS):
            machine = self._cache[name]
            view = self._view(machine)
            found = step(view, self._world.policy, self._world.clock)
            match found:
                case Wait():
                    until = found.until if found.until is not None else NEVER
                    if name not in self._asked and name not in self._refusals:
                        self._world.remember_wait(machine, until)
                    return until
                case Change():
                    try:
                        self._cache[name] = self._world.patch(name, found.patch(view), machine.version)
                    except Conflict:
                        return NEVER
                    if found.state is not None:
                        self._forget(name)
                    self._spend()
                case Evict():
                    for pod in found.pods:
                        self._evict(name, pod.metadata.uid)
                case Restart():
                    self._world.delete_driver(name, found.pod.uid)
                    self._answered(name, found.pod.uid)
                    self._spend()
        raise AssertionError(f"{name} does not come to rest")

    def switch_off(self) -> None:
        for name, machine in self._world.machines.items():
            view = self._view(machine)
            change = switch_off(view)
            if change is not None:
                self._world.patch(name, change.patch(view), machine.version)

    def _give_turns(self) -> float:
        if self._lost_answers.possible:
            self._cache |= {name: held for name, held in self._world.machines.items() if held.view(1).in_progress}
            self._lost_answers.read_back()
        views = [self._view(machine) for machine in self._cache.values()]
        found = rollout(self._world.policy, views, self._world.clock)
        for name, first in found.begin.items():
            machine = self._cache[name]
            try:
                with self._lost_answers.unless_answered():
                    written = self._world.patch(name, first.patch(self._view(machine)), machine.version)
                    self._hear_answer()
            except (Conflict, Unreachable):
                return self._world.clock
            self._cache[name] = written
            self._spend()
        return NEVER

    def _hear_answer(self) -> None:
        if self._stale and self._rng.random() < 0.3:
            raise Unreachable

    def _view(self, machine: Machine) -> NodeView:
        asked, refusals = self._asked.get(machine.name), self._refusals.get(machine.name)
        if not asked and not refusals:
            return self._world.view(machine)
        since = self._since.get(machine.name)
        return replace(machine.view(self._world.revision, asked), refusals=refusals or {}, asked_since=since)

    def _evict(self, name: str, uid: str) -> None:
        why = self._world.evict(name, uid)
        if why is None:
            self._answered(name, uid)
        else:
            self._since.setdefault(name, self._world.clock)
            self._refusals.setdefault(name, {})[uid] = Refusal(self._world.clock + _RETRY, why)
        self._spend()

    def _answered(self, name: str, uid: str) -> None:
        self._since.setdefault(name, self._world.clock)
        self._asked.setdefault(name, {})[uid] = self._world.clock

    def _forget(self, name: str) -> None:
        self._asked.pop(name, None)
        self._since.pop(name, None)
        self._refusals.pop(name, None)

    def _spend(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                raise Killed
