"""The fleet on one screen: what needs a person, what is free by model, and how many of everything there are."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpu_control_plane.api.gpudevice import DeviceState, GPUDevice
from gpu_control_plane.api.gpupool import PoolPhase
from gpu_control_plane.kube.fields import OpenEnum
from gpu_control_plane.kube.sentences import counted, counted_are
from gpu_control_plane.pools.pending_reasons import PendingReason
from gpu_control_plane.views.fleet import Fleet, Missing
from gpu_control_plane.views.loads import Load, load_of
from gpu_control_plane.views.nodes import READY, node_state
from gpu_control_plane.views.pods import explain_waiting
from gpu_control_plane.views.pools import PoolRow, pool_rows
from gpu_control_plane.views.upgrades import UpgradeProgress, upgrade_progress

_NAMED: Final = 3
"""Objects that a sentence names."""


class TodoKind(OpenEnum):
    """What a person can do something about, the most pressing first."""

    NOTHING_INSTALLED = "NotInstalled", "the cluster has none of our kinds."
    FAULTED = "CardsFaulted", "cards have a hardware fault and are out of service."
    NODES = "NodesNotReady", "nodes do not offer their cards, or not as they should."
    UPGRADE_FAILED = "UpgradeFailed", "the upgrade of drivers failed."
    POOLS = "PoolsNotReady", "pools cannot be carried out, or their maintenance is overdue."
    PODS_WAIT = "PodsWait", "pods wait for cards."
    IGNORED_APPROVALS = "ApprovalsIgnored", "cards are approved for a pool that cannot have them."
    BURN_IN_FAILED = "BurnInFailed", "cards failed their test."
    APPROVAL = "CardsAwaitApproval", "cards wait for a person's approval."
    UPGRADE = "UpgradeUnderWay", "drivers are being upgraded."
    NO_POOL = "CardsWithoutPool", "no pool selects the cards."
    HELD_IDLE = "CardsHeldIdle", "pods hold cards and do nothing with them."
    NO_NODES = "NoNodes", "there is no GPU node."


_FOR_INFORMATION: Final = frozenset(
    {TodoKind.PODS_WAIT, TodoKind.UPGRADE, TodoKind.HELD_IDLE, TodoKind.NO_POOL, TodoKind.NO_NODES}
)


class Todo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that needs a person."""

    kind: TodoKind
    count: int
    sentence: str
    """What it is, with the first of the objects it is about; without a full stop."""
    names: tuple[str, ...]
    """All of them."""
    command: str
    """That helps, or says more."""

    @property
    def urgent(self) -> bool:
        """Whether something is wrong or waits for a person, rather than being worth knowing."""
        return self.kind not in _FOR_INFORMATION


class ModelRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cards of a model, by what they do."""

    model: str
    total: int
    computing: int
    held_idle: int
    held: int
    """Held by pods, and not measured."""
    free: int
    out_of_service: int


class Overview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fleet in figures. Fields are added, never renamed or removed."""

    todo: tuple[Todo, ...]
    models: tuple[ModelRow, ...]
    pools: tuple[PoolRow, ...]
    nodes: int
    nodes_ready: int
    cards: int
    states: dict[str, int]
    """Cards by their state."""
    loads: dict[str, int]
    """Cards by what they do."""
    pods_holding: int
    pods_waiting: int
    upgrade: UpgradeProgress
    missing: tuple[Missing, ...]


def overview(fleet: Fleet) -> Overview:
    loads = {name: load_of(card) for name, card in fleet.cards.items()}
    by_load = Counter(loads.values())
    upgrade = upgrade_progress(fleet)
    ready = sum(node_state(state, fleet.nodes.get(name))[0] == READY for name, state in fleet.states.items())
    holding = {(user.namespace, user.pod) for card in fleet.cards.values() for user in card.status.used_by}
    return Overview(
        todo=tuple(sorted(todo_list(fleet, loads, upgrade), key=lambda todo: not todo.urgent)),
        models=model_rows(fleet.cards.values(), loads),
        pools=tuple(pool_rows(fleet)),
        nodes=len(fleet.states),
        nodes_ready=ready,
        cards=len(fleet.cards),
        states=dict(sorted(Counter(str(card.status.state or "Unknown") for card in fleet.cards.values()).items())),
        loads={load.value: by_load[load] for load in Load if by_load[load]},
        pods_holding=len(holding),
        pods_waiting=len(fleet.waiting),
        upgrade=upgrade,
        missing=fleet.missing,
    )


def model_rows(cards: Iterable[GPUDevice], loads: Mapping[str, Load]) -> tuple[ModelRow, ...]:
    """How many of each model compute, are held idle, and are free."""
    counts: dict[str, Counter[Load]] = defaultdict(Counter)
    for card in cards:
        hardware = card.status.hardware
        counts[hardware.product if hardware is not None else "unknown model"][loads[card.name]] += 1
    return tuple(
        ModelRow(
            model=model,
            total=count.total(),
            computing=count[Load.COMPUTING],
            held_idle=count[Load.HELD_IDLE],
            held=count[Load.HELD],
            free=count[Load.FREE],
            out_of_service=count[Load.OUT_OF_SERVICE],
        )
        for model, count in sorted(counts.items())
    )


def todo_list(fleet: Fleet, loads: Mapping[str, Load], upgrade: UpgradeProgress) -> Iterator[Todo]:
    """What needs a person, the most pressing first."""
    if any(not each.installed for each in fleet.missing):
        yield _todo(
            TodoKind.NOTHING_INSTALLED,
            [each.kind for each in fleet.missing if not each.installed],
            "the cluster has no GPU kinds: the product is not installed",
            "helm install gpu-control-plane charts/gpu-control-plane",
        )
        return
    yield from _of_faults(fleet)
    yield from _of_nodes(fleet)
    if upgrade.failed:
        failed = [node.node for node in upgrade.nodes if node.failure or node.state == "upgrade-failed"]
        sentence = f"the driver upgrade failed on {counted(len(failed), 'node')}: {_named(failed)}"
        yield _todo(TodoKind.UPGRADE_FAILED, failed, sentence, "kubectl gpu upgrade status")
    yield from _of_pools(fleet)
    yield from _of_pods(fleet)
    yield from _of_pending_cards(fleet)
    if upgrade.under_way:
        left = [node.node for node in upgrade.nodes if node.in_progress or node.state == "upgrade-required"]
        sentence = f"drivers are being upgraded: {upgrade.done} of {counted(upgrade.total, 'node')} done"
        yield _todo(TodoKind.UPGRADE, left, sentence, "kubectl gpu upgrade status")
    yield from _of_idle_cards(loads)
    if not fleet.states and not fleet.lacks("gpunodestates"):
        yield _todo(
            TodoKind.NO_NODES,
            (),
            "there is no GPU node: do the nodes have cards, and the label gpu.deckhouse.io/gpu.present?",
            "kubectl get nodes -L gpu.deckhouse.io/gpu.present",
        )


def _of_faults(fleet: Fleet) -> Iterator[Todo]:
    faulted = sorted(name for name, card in fleet.cards.items() if card.status.state is DeviceState.FAULTED)
    if faulted:
        sentence = f"{counted_are(len(faulted), 'card')} faulted: {_named(faulted)}"
        yield _todo(TodoKind.FAULTED, faulted, sentence, f"kubectl gpu explain device {faulted[0]}")


def _of_nodes(fleet: Fleet) -> Iterator[Todo]:
    by_word: dict[str, list[str]] = defaultdict(list)
    for name, state in sorted(fleet.states.items()):
        word, _ = node_state(state, fleet.nodes.get(name))
        if word not in {READY, "Cordoned", "NotManaged"}:
            by_word[word].append(name)
    for word, names in sorted(by_word.items(), key=lambda each: -len(each[1])):
        sentence = f"{counted_are(len(names), 'node')} not as they should be, {word}: {_named(names)}"
        if len(names) == 1:
            sentence = f"node {names[0]} is not as it should be: {word}"
        yield _todo(TodoKind.NODES, names, sentence, f"kubectl gpu explain node {names[0]}")


def _of_pools(fleet: Fleet) -> Iterator[Todo]:
    wrong = sorted(
        name
        for name, pool in fleet.pools.items()
        if pool.status.phase is PoolPhase.MISCONFIGURED
        or any(said.reason == "MaintenanceOverdue" and said.status == "True" for said in pool.status.conditions)
    )
    if wrong:
        sentence = f"{counted(len(wrong), 'pool')} cannot be carried out, or not in time: {_named(wrong)}"
        yield _todo(TodoKind.POOLS, wrong, sentence, f"kubectl gpu explain pool {wrong[0]}")


def _of_pods(fleet: Fleet) -> Iterator[Todo]:
    if not fleet.waiting:
        return
    explained = explain_waiting(fleet)
    by_cause: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for pod in fleet.waiting:
        key = pod.metadata.namespace or "", pod.name
        found = explained.get(key)
        by_cause[found.cause if found is not None else ""].append(key)
    for cause, pods in sorted(by_cause.items(), key=lambda each: -len(each[1])):
        namespace, name = min(pods)
        verb = "waits" if len(pods) == 1 else "wait"
        names = sorted(f"{each[0]}/{each[1]}" for each in pods)
        sentence = f"{counted(len(pods), 'pod')} {verb}{f', {cause}' if cause else ''}: {_named(names)}"
        yield _todo(TodoKind.PODS_WAIT, names, sentence, f"kubectl gpu explain pod {name} -n {namespace}")


def _of_pending_cards(fleet: Fleet) -> Iterator[Todo]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, card in sorted(fleet.cards.items()):
        if card.status.pool_ref is None and card.status.pending_reason and card.status.state is not DeviceState.FAULTED:
            by_reason[card.status.pending_reason].append(name)
    refused = [name for reason, names in by_reason.items() if PendingReason(reason).needs_attention for name in names]
    pending = "kubectl gpu devices --pending"
    kinds: Sequence[tuple[TodoKind, list[str], str, str]] = (
        (
            TodoKind.IGNORED_APPROVALS,
            refused,
            "approved for a pool that cannot have it",
            f"kubectl gpu explain device {min(refused, default='')}",
        ),
        (TodoKind.BURN_IN_FAILED, by_reason[PendingReason.BURN_IN_FAILED], "failed in burn-in", pending),
        (TodoKind.APPROVAL, by_reason[PendingReason.APPROVAL], "waiting for approval", pending),
        (TodoKind.NO_POOL, by_reason[PendingReason.NO_POOL], "selected by no pool", pending),
    )
    for kind, names, what, command in kinds:
        if names:
            yield _todo(kind, names, f"{counted_are(len(names), 'card')} {what}: {_named(names)}", command)


def _of_idle_cards(loads: Mapping[str, Load]) -> Iterator[Todo]:
    idle = sorted(name for name, load in loads.items() if load is Load.HELD_IDLE)
    if idle:
        sentence = f"{counted_are(len(idle), 'card')} held idle by pods: {_named(idle)}"
        yield _todo(TodoKind.HELD_IDLE, idle, sentence, "kubectl gpu pods -A --idle")


def _todo(kind: TodoKind, names: Sequence[str], sentence: str, command: str) -> Todo:
    return Todo(kind=kind, count=len(names), sentence=sentence, names=tuple(names), command=command)


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
