"""Situations of a node, and its conditions in each: the rules of bootstrap as one table.

Every row says what is unusual about the node, and which conditions are not as they should be, with their reasons.
"""

from datetime import timedelta
from typing import Final

import msgspec
import pytest

from gpu_control_plane.api.examples import NOON
from gpu_control_plane.api.gpunodestate import Driver, Monitoring, MonitoringSource, Plugin, Quiesced, StepResult
from gpu_control_plane.api.names import NodeCondition, Reason
from gpu_control_plane.bootstrap.conditions import GOOD_STATUS
from gpu_control_plane.bootstrap.decide import decide
from gpu_control_plane.bootstrap.operands import Operand
from gpu_control_plane.bootstrap.snapshot import Awaited, Snapshot, Timers
from gpu_control_plane.rules.node_readiness import contradicts_readiness
from unit.bootstrap.builders import (
    AGENT,
    COMPLETE,
    JUST_NOW,
    LONG_AGO,
    NEW,
    NO_CHECKS,
    NO_LABELS,
    READY,
    checked,
    condition,
    node,
    observed,
    pod,
    state,
    without,
)

D, T, M, L, X, R = (
    NodeCondition.DRIVER_MISSING,
    NodeCondition.TOOLKIT_MISSING,
    NodeCondition.MONITORING_MISSING,
    NodeCondition.GFD_READY,
    NodeCondition.DEGRADED,
    NodeCondition.READY_FOR_POOLING,
)
OP = Operand
BARE: Final = {"driver": None, "toolkit": None, "monitoring": None}
NO_EXPORTER: Final = state(monitoring=None)
INCOMPLETE: Final = condition(NodeCondition.INVENTORY_COMPLETE, False, Reason.CARDS_MISSING, "One is missing.")
AWAY: Final = Timers(missing_since={Operand.AGENT: LONG_AGO})
SLIPPING: Final = Timers(missing_since={Operand.AGENT: JUST_NOW})
AGENT_LOST: Final = {X: Reason.AGENT_NOT_READY, R: Reason.AGENT_NOT_READY, M: Reason.MONITORING_NOT_READY}
SAID_LOST: Final = (
    COMPLETE,
    condition(X, True, Reason.AGENT_NOT_READY),
    condition(R, False, Reason.AGENT_NOT_READY),
    condition(M, True, Reason.MONITORING_NOT_READY),
)
SAID_NO_DRIVER: Final = (COMPLETE, condition(R, False, Reason.DRIVER_NOT_READY))
SAID_LABELLED: Final = (COMPLETE, READY, condition(L, True, Reason.FEATURE_LABELS_FOUND))


def nvidia(operand: Operand, **changes: object) -> Snapshot:
    """The node with a pod of NVIDIA's stack beside the agent."""
    return observed(pods=(AGENT, pod(operand, **changes)))  # type: ignore[arg-type]


def validating(operand: Operand, **changes: object) -> Snapshot:
    """The node with an agent that checks nothing, and a validator's pod instead."""
    pods = (AGENT, pod(operand, **changes))  # type: ignore[arg-type]
    return observed(state=state(validation=None, agent=NO_CHECKS), pods=pods)


def dcgm(*pods: object) -> Snapshot:
    """The node with an agent that exports nothing, and these instead."""
    return observed(state=NO_EXPORTER, pods=(AGENT, *pods))


SITUATIONS: Final = {
    # Nothing is wrong.
    "node cordoned": (observed(node=node(cordoned=True)), {}),
    "all in order": (observed(), {}),
    "agent run by hand, no pods anywhere": (observed(pods=(), expected=frozenset()), {}),
    "never checked": (observed(state=state(validation=None)), {}),
    "checks still running": (observed(state=state(validation=checked("driver", StepResult.RUNNING))), {}),
    "checks switched off": (observed(state=state(validation=checked("cuda", StepResult.SKIPPED))), {}),
    "plugin check failed: not an obstacle": (observed(state=state(validation=checked("plugin"))), {}),
    "kubelet away, pods look unready": (observed(node=node(ready=False), pods=(pod(OP.AGENT, ready=False),)), {}),
    # Inventory.
    "inventory incomplete": (observed(state=state(conditions=(INCOMPLETE,))), {R: Reason.INVENTORY_INCOMPLETE}),
    "inventory incomplete and no driver": (
        observed(state=state(conditions=(INCOMPLETE,), **BARE)),
        {R: Reason.INVENTORY_INCOMPLETE, D: Reason.DRIVER_NOT_FOUND, T: Reason.TOOLKIT_NOT_FOUND}
        | {M: Reason.MONITORING_NOT_FOUND},
    ),
    # Driver and toolkit, each by itself.
    "no driver": (
        observed(state=state(**BARE)),
        {D: Reason.DRIVER_NOT_FOUND, T: Reason.TOOLKIT_NOT_FOUND, M: Reason.MONITORING_NOT_FOUND}
        | {R: Reason.DRIVER_NOT_READY},
    ),
    "driver there, broken": (
        observed(state=state(validation=checked("driver"))),
        {D: Reason.VALIDATION_FAILED, R: Reason.DRIVER_NOT_READY},
    ),
    "driver fine, no toolkit": (
        observed(state=state(toolkit=None)),
        {T: Reason.TOOLKIT_NOT_FOUND, R: Reason.TOOLKIT_NOT_READY},
    ),
    "driver fine, toolkit broken": (
        observed(state=state(validation=checked("toolkit"))),
        {T: Reason.VALIDATION_FAILED, R: Reason.TOOLKIT_NOT_READY},
    ),
    "toolkit fine, no driver": (
        observed(state=state(driver=None)),
        {D: Reason.DRIVER_NOT_FOUND, R: Reason.DRIVER_NOT_READY},
    ),
    "kernel failed on a card": (observed(state=state(validation=checked("cuda"))), {R: Reason.VALIDATION_FAILED}),
    "validator pod stuck at driver": (
        validating(OP.NVIDIA_VALIDATOR, ready=False, step="driver-validation"),
        {D: Reason.VALIDATOR_NOT_PASSED, R: Reason.DRIVER_NOT_READY},
    ),
    "validator pod stuck at toolkit": (
        validating(OP.NVIDIA_VALIDATOR, ready=False, step="toolkit-validation"),
        {T: Reason.VALIDATOR_NOT_PASSED, R: Reason.TOOLKIT_NOT_READY},
    ),
    "our validator stuck at cuda": (
        validating(OP.VALIDATOR, ready=False, step="cuda-validation"),
        {R: Reason.VALIDATOR_NOT_PASSED},
    ),
    "validator pod stuck at plugin: not an obstacle": (
        validating(OP.NVIDIA_VALIDATOR, ready=False, step="plugin-validation"),
        {},
    ),
    "validator pod at driver for a moment": (
        validating(OP.NVIDIA_VALIDATOR, ready=False, since=JUST_NOW, step="driver-validation"),
        {},
    ),
    "validator pod passed": (validating(OP.NVIDIA_VALIDATOR), {}),
    "agent and a validator's pod both check": (nvidia(OP.NVIDIA_VALIDATOR), {X: Reason.DUPLICATE_SOURCE}),
    "no driver, its pod is at work": (
        observed(state=state(**BARE), pods=(AGENT, pod(OP.NVIDIA_DRIVER, ready=False, since=JUST_NOW))),
        {D: Reason.DRIVER_NOT_FOUND, T: Reason.TOOLKIT_NOT_FOUND, M: Reason.MONITORING_NOT_FOUND}
        | {R: Reason.DRIVER_NOT_READY},
    ),
    "driver older than the check needs": (
        observed(state=state(validation=checked("cuda", message="CUDA 13 needs driver 580 or newer, 535 is loaded."))),
        {R: Reason.VALIDATION_FAILED},
    ),
    "new kernel after a restart, driver not built for it": (
        observed(state=state(**BARE), node=node(kernel="6.8.0-60-generic")),
        {D: Reason.DRIVER_NOT_FOUND, T: Reason.TOOLKIT_NOT_FOUND, M: Reason.MONITORING_NOT_FOUND}
        | {R: Reason.DRIVER_NOT_READY},
    ),
    "no driver, its pod crashes": (
        observed(state=state(**BARE), pods=(AGENT, pod(OP.NVIDIA_DRIVER, ready=False, crashed=NOON))),
        {D: Reason.DRIVER_NOT_FOUND, T: Reason.TOOLKIT_NOT_FOUND, M: Reason.MONITORING_NOT_FOUND}
        | {R: Reason.DRIVER_NOT_READY},
    ),
    # The agent.
    "agent restarting": (observed(pods=(pod(OP.AGENT, ready=False, since=JUST_NOW),)), {}),
    "agent unready for an hour": (observed(pods=(pod(OP.AGENT, ready=False),)), AGENT_LOST),
    "agent ends, its successor starts": (
        observed(pods=(pod(OP.AGENT, over=True), pod(OP.AGENT, ready=False, since=JUST_NOW))),
        {},
    ),
    "no agent, though others have one, just noticed": (observed(pods=()), {}),
    "no agent for seconds": (observed(pods=(), timers=SLIPPING), {}),
    "no agent for long": (observed(pods=(), timers=AWAY), AGENT_LOST),
    "agent was lost, is back for seconds": (
        observed(state=state(conditions=SAID_LOST), pods=(pod(OP.AGENT, since=JUST_NOW),)),
        AGENT_LOST,
    ),
    "agent was lost, is back for good": (observed(state=state(conditions=SAID_LOST)), {}),
    "agent was lost, starts once more": (
        observed(state=state(conditions=SAID_LOST), pods=(pod(OP.AGENT, ready=False, since=JUST_NOW),)),
        AGENT_LOST,
    ),
    "agent was lost, controller restarted": (observed(state=state(conditions=SAID_LOST), pods=()), AGENT_LOST),
    "agent was lost, kubelet is away": (
        observed(state=state(conditions=SAID_LOST), pods=(), node=node(ready=False)),
        AGENT_LOST,
    ),
    "no agent anywhere any more, this node had one": (
        observed(pods=(), expected=frozenset(), timers=Timers(operands=frozenset({OP.AGENT}))),
        {},
    ),
    "no agent anywhere any more, for long": (observed(pods=(), expected=frozenset(), timers=AWAY), AGENT_LOST),
    "no agent anywhere, its loss is in the conditions": (
        observed(state=state(conditions=SAID_LOST), pods=(), expected=frozenset()),
        AGENT_LOST,
    ),
    "agent cannot be scheduled": (observed(pods=(pod(OP.AGENT, ready=False, unscheduled=True),)), AGENT_LOST),
    "agent cannot get its image": (
        observed(pods=(pod(OP.AGENT, ready=False, waiting="ErrImagePull"),)),
        AGENT_LOST,
    ),
    "agent crashes": (observed(pods=(pod(OP.AGENT, ready=False, crashed=NOON),)), AGENT_LOST),
    "two agents during an update": (observed(pods=(AGENT, pod(OP.AGENT, since=JUST_NOW, suffix="x2"))), {}),
    "two agents for long": (
        observed(pods=(AGENT, pod(OP.AGENT, suffix="x2"))),
        {X: Reason.CONFLICTING_DEVICE_PLUGIN, R: Reason.CONFLICTING_DEVICE_PLUGIN},
    ),
    "two agents, one of them broken": (observed(pods=(AGENT, pod(OP.AGENT, ready=False, suffix="x2"))), {}),
    "driver released for an upgrade": (
        observed(state=state(quiesced=Quiesced(since=NOON, reason="paused-for-driver-upgrade"))),
        {X: Reason.DRIVER_RELEASED, R: Reason.DRIVER_RELEASED},
    ),
    "driver hangs": (
        observed(state=state(plugin=Plugin(observed_generation=1, driver_hung=True))),
        {X: Reason.DRIVER_HUNG, R: Reason.DRIVER_HUNG},
    ),
    # Metrics.
    "no exporter": (observed(state=NO_EXPORTER), {M: Reason.MONITORING_NOT_FOUND}),
    "exporter pod instead of the agent": (dcgm(pod(OP.EXPORTER)), {}),
    "exporter of a ClusterPolicy instead": (dcgm(pod(OP.NVIDIA_EXPORTER)), {}),
    "exporter pod restarting": (dcgm(pod(OP.EXPORTER, ready=False, since=JUST_NOW)), {}),
    "exporter pod broken": (dcgm(pod(OP.EXPORTER, ready=False)), {M: Reason.MONITORING_NOT_READY}),
    "exporter fine, its engine broken": (
        dcgm(pod(OP.EXPORTER), pod(OP.DCGM, ready=False)),
        {M: Reason.MONITORING_NOT_READY},
    ),
    "exporter and engine fine": (dcgm(pod(OP.EXPORTER), pod(OP.DCGM)), {}),
    "agent and exporter": (
        observed(pods=(AGENT, pod(OP.EXPORTER))),
        {X: Reason.DUPLICATE_SOURCE},
    ),
    "agent and a ClusterPolicy's exporter": (nvidia(OP.NVIDIA_EXPORTER), {X: Reason.DUPLICATE_SOURCE}),
    "agent and a broken exporter: one source": (nvidia(OP.NVIDIA_EXPORTER, ready=False), {}),
    "exporter from a chart of its own instead": (dcgm(pod(OP.OTHER_EXPORTER)), {}),
    "agent and an exporter from a chart of its own": (nvidia(OP.OTHER_EXPORTER), {X: Reason.DUPLICATE_SOURCE}),
    "agent says that DCGM exports": (
        observed(state=state(monitoring=Monitoring(source=MonitoringSource.DCGM)), pods=(AGENT, pod(OP.EXPORTER))),
        {},
    ),
    # Feature labels.
    "no labels, and no operand writes them": (
        observed(state=state(agent=NO_LABELS), node=node(without("gpu.product"))),
        {L: Reason.FEATURE_LABELS_MISSING},
    ),
    "labels of the GFD pod": (observed(state=state(agent=NO_LABELS), pods=(AGENT, pod(OP.GFD))), {}),
    "agent that does not say whether it labels, and GFD": (
        observed(state=state(agent=None), pods=(AGENT, pod(OP.GFD))),
        {},
    ),
    "GFD pod broken": (
        observed(state=state(agent=NO_LABELS), pods=(AGENT, pod(OP.GFD, ready=False))),
        {L: Reason.GFD_NOT_READY},
    ),
    "GFD pod restarting": (
        observed(state=state(agent=NO_LABELS), pods=(AGENT, pod(OP.GFD, ready=False, since=JUST_NOW))),
        {},
    ),
    "agent and GFD both label": (
        observed(pods=(AGENT, pod(OP.GFD))),
        {X: Reason.DUPLICATE_SOURCE},
    ),
    "agent and a ClusterPolicy's GFD both label": (nvidia(OP.NVIDIA_GFD), {X: Reason.DUPLICATE_SOURCE}),
    "agent that does not label and a ClusterPolicy's GFD": (
        observed(state=state(agent=NO_LABELS), pods=(AGENT, pod(OP.NVIDIA_GFD))),
        {},
    ),
    "labels of another driver": (
        observed(node=node(without(**{"cuda.driver-version_full": "570.1"}))),
        {L: Reason.FEATURE_LABELS_STALE},
    ),
    "labels of another model": (
        observed(node=node(without(gpu_product="NVIDIA-A100"))),
        {L: Reason.FEATURE_LABELS_STALE},
    ),
    "labels of one card too many": (observed(node=node(without(gpu_count="3"))), {L: Reason.FEATURE_LABELS_STALE}),
    "labels of shared cards": (observed(node=node(without(gpu_product="NVIDIA-H200-SHARED"))), {}),
    "labels of MIG instances": (
        observed(node=node(without(gpu_product="NVIDIA-H200-MIG-1g.18gb", gpu_count="14"))),
        {},
    ),
    "labels of whole cards, half of them cut": (
        observed(node=node(without(gpu_count="2", mig_strategy="mixed"))),
        {},
    ),
    "labels behind the report for a moment": (
        observed(state=state(conditions=SAID_LABELLED), node=node(without(gpu_count="3"))),
        {},
    ),
    "labels behind the report for long": (
        observed(
            state=state(conditions=SAID_LABELLED),
            node=node(without(gpu_count="3")),
            timers=Timers(awaited_since={Awaited.FEATURE_LABELS: LONG_AGO}),
        ),
        {L: Reason.FEATURE_LABELS_STALE},
    ),
    # Nodes that are not proven yet, once that has lasted.
    "new: agent that never reported its checks": (
        observed(state=state(conditions=NEW, validation=None)),
        {R: Reason.CHECKS_PENDING},
    ),
    "new: agent that checks nothing": (
        observed(state=state(conditions=NEW, validation=None, agent=NO_CHECKS)),
        {},
    ),
    "new: agent that does not say whether it checks": (
        observed(state=state(conditions=NEW, validation=None, agent=None)),
        {R: Reason.CHECKS_PENDING},
    ),
    "new: no agent pods anywhere, never checked": (
        observed(state=state(conditions=NEW, validation=None), pods=(), expected=frozenset()),
        {},
    ),
    "new: all in order": (observed(state=state(conditions=NEW)), {}),
    "new: every card in use, no kernel could run": (
        observed(state=state(conditions=NEW, validation=checked("cuda", StepResult.RUNNING))),
        {},
    ),
    "new: kubelet away": (
        observed(state=state(conditions=NEW), node=node(ready=False), pods=(pod(OP.AGENT, ready=False),)),
        {R: Reason.CHECKS_PENDING},
    ),
    "new: agent not ready for an hour": (
        observed(state=state(conditions=NEW), pods=(pod(OP.AGENT, ready=False),)),
        AGENT_LOST,
    ),
    "new: no driver, agent still starting": (
        observed(state=state(conditions=NEW, **BARE), pods=(pod(OP.AGENT, ready=False, since=JUST_NOW),)),
        {D: Reason.DRIVER_NOT_FOUND, T: Reason.TOOLKIT_NOT_FOUND, M: Reason.MONITORING_NOT_FOUND}
        | {R: Reason.DRIVER_NOT_READY},
    ),
    "not ready: driver is back, agent starts": (
        observed(state=state(conditions=SAID_NO_DRIVER), pods=(pod(OP.AGENT, ready=False, since=JUST_NOW),)),
        {R: Reason.CHECKS_PENDING},
    ),
    "not ready: driver is back, another one than was checked": (
        observed(state=state(conditions=SAID_NO_DRIVER, driver=Driver(version="590.1"))),
        {R: Reason.CHECKS_PENDING, L: Reason.FEATURE_LABELS_STALE},
    ),
    "ready: another driver than was checked, for a moment": (
        observed(state=state(driver=Driver(version="590.1")), node=node(without("cuda.driver-version.full"))),
        {},
    ),
    "not ready: driver is back and was checked": (observed(state=state(conditions=SAID_NO_DRIVER)), {}),
    # Other device plugins.
    "resources of a foreign plugin": (
        observed(state=state(plugin=Plugin(observed_generation=1, conflicts=("nvidia.com/gpu",)))),
        {X: Reason.CONFLICTING_DEVICE_PLUGIN, R: Reason.CONFLICTING_DEVICE_PLUGIN},
    ),
    "NVIDIA's plugin beside the agent's": (
        nvidia(OP.NVIDIA_PLUGIN),
        {X: Reason.CONFLICTING_DEVICE_PLUGIN, R: Reason.CONFLICTING_DEVICE_PLUGIN},
    ),
    "NVIDIA's plugin instead of the agent's": (
        observed(state=state(plugin=None), pods=(AGENT, pod(OP.NVIDIA_PLUGIN))),
        {R: Reason.CONFLICTING_DEVICE_PLUGIN},
    ),
    "NVIDIA's plugin is being removed": (nvidia(OP.NVIDIA_PLUGIN, over=True), {}),
    "foreign plugin, and the agent is lost": (
        observed(pods=(pod(OP.AGENT, ready=False), pod(OP.NVIDIA_PLUGIN))),
        AGENT_LOST,
    ),
}


def test_there_are_enough_of_them() -> None:
    assert len(SITUATIONS) >= 90


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_conditions_of_each_situation(name: str) -> None:
    snapshot, expected = SITUATIONS[name]
    conditions = decide(snapshot).conditions
    wrong = {held.type: held.reason for held in conditions if held.status != GOOD_STATUS[NodeCondition(held.type)]}
    assert wrong == {str(kind): str(reason) for kind, reason in expected.items()}
    assert [held.type for held in conditions] == [D, T, M, L, X, R]


@pytest.mark.parametrize("name", SITUATIONS)
def test_deciding_again_on_what_was_written_changes_nothing(name: str) -> None:
    snapshot, _ = SITUATIONS[name]
    first = decide(snapshot)
    inventory = next(held for held in snapshot.conditions if held.type == NodeCondition.INVENTORY_COMPLETE)
    written = state(
        **{
            field: getattr(snapshot.state.status, field)
            for field in ("driver", "toolkit", "monitoring", "agent", "validation", "plugin", "quiesced")
        }
        | {"conditions": (inventory, *first.conditions)}
    )
    again = observed(
        state=written,
        node=snapshot.node,
        pods=snapshot.pods,
        expected=snapshot.expected,
        timers=first.timers,
        now=NOON + timedelta(seconds=1),
    )
    assert decide(again).conditions == first.conditions


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_status_of_a_ready_node_does_not_contradict_its_readiness(name: str) -> None:
    """Pools would never issue cards of a node whose status did."""
    snapshot, expected = SITUATIONS[name]
    assert R in expected or not contradicts_readiness(snapshot.state.status)


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_condition_has_a_message(name: str) -> None:
    snapshot, _ = SITUATIONS[name]
    for held in decide(snapshot).conditions:
        assert held.message.endswith((".", "answer")), held.message


@pytest.mark.parametrize(
    ("snapshot", "wait"),
    [
        (observed(state=state(conditions=NEW), pods=(pod(OP.AGENT, ready=False, since=JUST_NOW),)), 50),
        (observed(state=state(conditions=NEW), pods=()), 60),
        (observed(state=state(conditions=NEW, validation=None), pods=(pod(OP.AGENT, since=JUST_NOW),)), 50),
        (
            observed(
                state=state(conditions=NEW, validation=None, agent=NO_CHECKS),
                pods=(AGENT, pod(OP.VALIDATOR, ready=False, since=JUST_NOW, step="cuda-validation")),
            ),
            50,
        ),
    ],
    ids=["agent starting", "agent not there yet", "checks not reported yet", "validator at work"],
)
def test_a_new_node_has_no_conditions_until_it_is_checked_or_a_minute_has_passed(snapshot: Snapshot, wait: int) -> None:
    decision = decide(snapshot)
    assert decision.conditions == ()
    assert decision.again_in == timedelta(seconds=wait)
    late = msgspec.structs.replace(snapshot, now=snapshot.now + timedelta(seconds=wait), timers=decision.timers)
    written = {held.type: held.status for held in decide(late).conditions}
    assert written[R] == "False"


def test_there_are_no_conditions_before_inventory_has_written_its_own() -> None:
    assert decide(observed(state=state(conditions=()))).conditions == ()
