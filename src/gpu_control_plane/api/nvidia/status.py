"""What the two kinds report: their own vocabulary (`state`, `namespace`, `Ready`, `Error`) and, beyond it, each state
of the stack, each broken node, and how far a driver upgrade has come."""

from datetime import datetime
from typing import Annotated

import msgspec

from gpu_control_plane.api.shapes import wire_name
from gpu_control_plane.kube.fields import OpenEnum, about
from gpu_control_plane.kube.objects import Condition

MAX_NODES_NAMED = 20


class Report(msgspec.Struct, frozen=True, rename=wire_name, kw_only=True, omit_defaults=True):
    """Base of every part of a status."""


class State(OpenEnum):
    """How a ClusterPolicy or an NVIDIADriver stands."""

    IGNORED = "ignored", "another ClusterPolicy is in force."
    READY = "ready", "everything it asks for runs."
    NOT_READY = "notReady", "something is missing; the conditions say what."
    DISABLED = "disabled", "the ClusterPolicy does not ask for NVIDIADrivers."


class OperandState(OpenEnum):
    """How one state of the stack stands."""

    READY = "ready", "it runs wherever it should."
    NOT_READY = "notReady", "it does not run everywhere yet."
    DISABLED = "disabled", "it is switched off and its objects are gone."
    FAILED = "failed", "it cannot be rendered or written; the message says why."


class NodeTrouble(Report, frozen=True, kw_only=True):
    """A node on which a state is not ready."""

    node: Annotated[str, about("Name of the Node.", maxLength=253)]
    reason: Annotated[str, about("One word for what is wrong.", maxLength=64)]
    message: Annotated[str, about("What is wrong and what to do.", maxLength=1024)] = ""


class StateReport(Report, frozen=True, kw_only=True):
    """One state of the stack."""

    name: Annotated[str, about("Name of the state.", maxLength=63)]
    state: Annotated[OperandState, about("How it stands.")]
    desired: Annotated[int, about("Nodes it should run on.", minimum=0)] = 0
    ready: Annotated[int, about("Nodes it runs on.", minimum=0)] = 0
    message: Annotated[str, about("Why it is not ready.", maxLength=1024)] = ""
    nodes: Annotated[
        tuple[NodeTrouble, ...],
        about("The first nodes on which it is not ready.", keys=("node",), maxItems=MAX_NODES_NAMED),
    ] = ()


class UpgradeReport(Report, frozen=True, kw_only=True):
    """How far a driver upgrade has come."""

    total: Annotated[int, about("Nodes whose driver is managed.", minimum=0)] = 0
    done: Annotated[int, about("Nodes with the driver as it should be.", minimum=0)] = 0
    in_progress: Annotated[int, about("Nodes being upgraded.", minimum=0)] = 0
    pending: Annotated[int, about("Nodes that wait for their turn.", minimum=0)] = 0
    failed: Annotated[int, about("Nodes on which it failed.", minimum=0)] = 0
    skipped: Annotated[int, about("Nodes that are to be left alone.", minimum=0)] = 0
    average_seconds: Annotated[int | None, about("How long a node took, on average.", minimum=0)] = None
    measured: Annotated[int, about("Nodes behind that average.", minimum=0)] = 0
    expected_end: Annotated[datetime | None, about("When the last node should be done.")] = None
    message: Annotated[str, about("What is waited for.", maxLength=1024)] = ""
    failed_nodes: Annotated[
        tuple[NodeTrouble, ...],
        about("The first nodes on which it failed, and why.", keys=("node",), maxItems=MAX_NODES_NAMED),
    ] = ()


class StackStatus(Report, frozen=True, kw_only=True):
    """How the stack stands."""

    state: Annotated[State | None, about("The whole in one word.", required=True)] = None
    """None until somebody has looked. A default such as `notReady` would be left out when it is written."""
    namespace: Annotated[str, about("Namespace of the operands.", maxLength=63)] = ""
    observed_generation: Annotated[int, about("Generation of the spec that this answers.", minimum=0)] = 0
    states: Annotated[tuple[StateReport, ...], about("Each state, in order.", keys=("name",), maxItems=64)] = ()
    upgrade: Annotated[UpgradeReport | None, about("How far a driver upgrade has come.")] = None
    conditions: Annotated[
        tuple[Condition, ...], about("Ready and Error, and what else people should know.", keys=("type",), maxItems=16)
    ] = ()
