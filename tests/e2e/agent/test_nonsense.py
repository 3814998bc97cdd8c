"""Whatever is written into the node's objects: the agent stays up, says what is wrong and does what is right."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from blocking_wait import until
from e2e.agent.agent_env import PREFIX, AgentEnv, settle
from gpu_control_plane.agent.simulated.machine import HARDWARE
from gpu_control_plane.api.allocation import MIG, Allocation, Mode, ProfileCount
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource
from unit.agent.step.builders import exclusive, partitioned, time_sliced

TRAINING = f"{PREFIX}/training"
MISCONFIGURED, WAITING = "Misconfigured", "Waiting"
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"

type Nonsense = Callable[[AgentEnv], tuple[Assignment, ...]]


def mig(card: str, *offered: OfferedResource, **parts: Any) -> Assignment:
    allocation = Allocation(mode=Mode.MIG, mig=MIG(**parts))
    return Assignment(inventory_id=card, pool="training", resources=offered, allocation=allocation)


def resource(name: str, profile: str | None = None) -> OfferedResource:
    return OfferedResource(name=name, units=1, profile=profile)


def counts(**profiles: int) -> tuple[ProfileCount, ...]:
    return tuple(ProfileCount(profile=name.replace("_", "."), count=count) for name, count in profiles.items())


ORDERS: dict[str, tuple[Nonsense, dict[int | None, str]]] = {
    "a card that is not there": (
        lambda env: (exclusive(f"{env.node.name}-0000-ff-00-0"), exclusive(env.card(1))),
        {None: WAITING},
    ),
    "as many unknown cards as fit": (
        lambda env: tuple(exclusive(f"{env.node.name}-{number}") for number in range(64)),
        {None: WAITING},
    ),
    "64 replicas on every card": (
        lambda env: (time_sliced(env.card(0), 64), time_sliced(env.card(1), 64)),
        {},
    ),
    "one resource, two modes": (lambda env: (exclusive(env.card(0)), time_sliced(env.card(1), 2)), {}),
    "a profile that no card has": (
        lambda env: (mig(env.card(0), resource(TRAINING), profile="9g.999gb"),),
        {0: MISCONFIGURED},
    ),
    "more instances than fit": (lambda env: (partitioned(env.card(0), **{"3g_71gb": 16}),), {0: MISCONFIGURED}),
    "media extensions twice": (
        lambda env: (
            mig(env.card(0), resource(TRAINING, "1g.18gb+me"), layout=counts(**{"1g_18gb+me": 2, "7g_141gb": 1})),
        ),
        {0: MISCONFIGURED},
    ),
    "profiles without a resource": (
        lambda env: (mig(env.card(0), resource(TRAINING), layout=counts(**{"3g_71gb": 2})),),
        {0: MISCONFIGURED},
    ),
    "resources for other profiles": (
        lambda env: (
            mig(
                env.card(0),
                *(resource(f"{TRAINING}.{number}", f"{number + 2}g.71gb") for number in range(16)),
                profile="1g.18gb",
            ),
        ),
        {0: MISCONFIGURED},
    ),
    "a resource of Kubernetes' own": (
        lambda env: (exclusive(env.card(0), "cpu"), exclusive(env.card(1), "kubernetes.io/gpu")),
        {0: MISCONFIGURED, 1: MISCONFIGURED},
    ),
    "names that are no names": (
        lambda env: (exclusive(env.card(0), "x" * 253), exclusive(env.card(1), "Ünsinn \t/\n")),
        {0: MISCONFIGURED, 1: MISCONFIGURED},
    ),
    "another vendor's resource": (lambda env: (exclusive(env.card(0), "nvidia.com/odd"),), {}),
    "nothing at all": (lambda _scene: (), {}),
}


def answered(env: AgentEnv) -> bool:
    state = env.state()
    told = state["status"].get("plugin", {}).get("observedGeneration")
    return bool(told == state["metadata"]["generation"])


def expected(env: AgentEnv, order: tuple[Assignment, ...], reasons: dict[int | None, str]) -> dict[str, str]:
    """The problems by card; None stands for all cards that are not there."""
    there = {env.card(0), env.card(1)}
    strangers = {
        each.inventory_id: reasons[None] for each in order if None in reasons and each.inventory_id not in there
    }
    return strangers | {env.card(index): reason for index, reason in reasons.items() if index is not None}


def problems(env: AgentEnv) -> dict[str, str]:
    return {each["inventoryID"]: each["reason"] for each in env.state()["status"]["plugin"].get("problems", [])}


def stays_up(env: AgentEnv, pid: int) -> bool:
    return env.agent is not None and env.agent.pid == pid and env.agent.poll() is None


def test_every_order_is_answered_and_a_good_one_still_works_afterwards(env: AgentEnv) -> None:
    assert env.agent is not None
    pid = env.agent.pid
    for name, (make, reasons) in ORDERS.items():
        order = make(env)
        env.order(*order)
        wanted = expected(env, order, reasons)
        until(lambda: answered(env) and problems(env) == wanted, within=90)  # noqa: B023 - called at once
        assert stays_up(env, pid), name
    env.order(exclusive(env.card(0), TRAINING), exclusive(env.card(1), TRAINING))
    env.wait_offered(TRAINING, 2)
    env.cluster_env.run_pod("sane", limits={TRAINING: 1})
    assert len(env.cards_in("sane")) == 1
    assert stays_up(env, pid)


def test_a_resource_in_anothers_domain_that_we_no_longer_serve_is_no_rival(env: AgentEnv) -> None:
    """The Node shows it for a while after it was withdrawn, and other cards must not suffer from that."""
    odd = "nvidia.com/mig-odd"
    env.cluster_env.kubectl("delete", "pods", "--all", "--wait")
    env.order(exclusive(env.card(0), odd), exclusive(env.card(1), TRAINING))
    env.wait_offered(odd, 1)
    env.order(exclusive(env.card(0), TRAINING), exclusive(env.card(1), TRAINING))
    env.wait_offered(TRAINING, 2)
    env.wait_offered(odd, 0)
    rivals = env.cluster_env.kubectl(
        "get", "events", "-A", "--field-selector", "reason=ConflictingDevicePlugin", "-o", "name"
    )
    assert rivals == ""


def test_a_mode_of_a_later_release_is_refused_by_the_api_of_this_one(env: AgentEnv) -> None:
    order = exclusive(env.card(0), TRAINING)
    with pytest.raises(AssertionError, match="MPS"):
        env.order(msgspec.structs.replace(order, allocation=Allocation(mode=Mode("MPS"))))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[1, 2]",
        '{"profile": "Voodoo2", "cards": 2}',
        '{"profile": "H200-141", "cards": -1}',
        '{"profile": "H200-141", "cards": 99999999}',
        '{"profile": "H200-141", "cards": 2, "slowSeconds": -5}',
        '{"profile": "H200-141", "cards": 2, "slowSeconds": 1e300}',
        '{"profile": "H200-141", "cards": 2, "history": {"0000:18:00.0": {"xids": [-7]}}}',
        '{"profile": "H200-141", "cards": 2, "history": "none"}',
    ],
)
def test_hardware_that_makes_no_sense_changes_nothing(env: AgentEnv, text: str) -> None:
    assert env.agent is not None
    pid, told = env.agent.pid, warnings(env)
    annotate(env, text)
    until(lambda: warnings(env) > told)
    assert stays_up(env, pid)
    assert env.allocatable(TRAINING) == 2
    annotate(env, good(env))


def test_an_agent_that_starts_without_sensible_hardware_waits_for_it(env: AgentEnv) -> None:
    env.stop_agent()
    annotate(env, "nonsense")
    env.start_agent()
    assert env.agent is not None
    pid = env.agent.pid
    settle(3)
    assert stays_up(env, pid)
    annotate(env, good(env))
    env.wait_offered(TRAINING, 2)
    assert stays_up(env, pid)


@pytest.mark.parametrize(
    ("value", "heeded"),
    [
        (f"paused-for-{'x' * 52}", True),
        ("paused-for-A_b.C", True),
        ("paused-for", False),
        ("Paused-for-driver-upgrade", False),
        ("true", False),
        ("", False),
    ],
)
def test_labels_pause_the_agent_only_when_they_say_so(env: AgentEnv, value: str, heeded: bool) -> None:
    assert env.agent is not None
    pid = env.agent.pid
    env.cluster_env.kubectl("label", "node", env.node.name, "--overwrite", f"{DEPLOY}={value}")
    try:
        if heeded:
            until(lambda: env.state()["status"].get("quiesced", {}).get("reason") == value)
        else:
            settle(1)
            assert "quiesced" not in env.state()["status"]
    finally:
        env.cluster_env.kubectl("label", "node", env.node.name, f"{DEPLOY}-")
    until(lambda: "quiesced" not in env.state()["status"])
    env.wait_offered(TRAINING, 2)
    assert stays_up(env, pid)


def annotate(env: AgentEnv, text: str) -> None:
    env.cluster_env.kubectl("annotate", "node", env.node.name, "--overwrite", f"{HARDWARE}={text}")


def good(env: AgentEnv) -> str:
    return msgspec.json.encode(env.machine).decode()


def warnings(env: AgentEnv) -> int:
    lines = (env.node.logs / "agent.log").read_text().rpartition("\n")[0].splitlines()
    return sum(
        json.loads(line).get("event") == "the hardware stays as it was" for line in lines if line.startswith("{")
    )
