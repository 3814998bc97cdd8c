"""Whatever is written into the node's objects: the agent stays up, says what is wrong and does what is right."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from blocking_wait import until
from e2e.agent.scene import PREFIX, AgentScene, settle
from gpu_control_plane.agent.simulated.machine import HARDWARE
from gpu_control_plane.api.allocation import MIG, Allocation, Mode, ProfileCount
from gpu_control_plane.api.gpunodestate import Assignment, OfferedResource
from unit.agent.step.builders import exclusive, partitioned, time_sliced

TRAINING = f"{PREFIX}/training"
MISCONFIGURED, WAITING = "Misconfigured", "Waiting"
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"

type Nonsense = Callable[[AgentScene], tuple[Assignment, ...]]


def mig(card: str, *offered: OfferedResource, **parts: Any) -> Assignment:
    allocation = Allocation(mode=Mode.MIG, mig=MIG(**parts))
    return Assignment(inventory_id=card, pool="training", resources=offered, allocation=allocation)


def resource(name: str, profile: str | None = None) -> OfferedResource:
    return OfferedResource(name=name, units=1, profile=profile)


def counts(**profiles: int) -> tuple[ProfileCount, ...]:
    return tuple(ProfileCount(profile=name.replace("_", "."), count=count) for name, count in profiles.items())


ORDERS: dict[str, tuple[Nonsense, dict[int | None, str]]] = {
    "a card that is not there": (
        lambda scene: (exclusive(f"{scene.node.name}-0000-ff-00-0"), exclusive(scene.card(1))),
        {None: WAITING},
    ),
    "as many unknown cards as fit": (
        lambda scene: tuple(exclusive(f"{scene.node.name}-{number}") for number in range(64)),
        {None: WAITING},
    ),
    "64 replicas on every card": (
        lambda scene: (time_sliced(scene.card(0), 64), time_sliced(scene.card(1), 64)),
        {},
    ),
    "one resource, two modes": (lambda scene: (exclusive(scene.card(0)), time_sliced(scene.card(1), 2)), {}),
    "a profile that no card has": (
        lambda scene: (mig(scene.card(0), resource(TRAINING), profile="9g.999gb"),),
        {0: MISCONFIGURED},
    ),
    "more instances than fit": (lambda scene: (partitioned(scene.card(0), **{"3g_71gb": 16}),), {0: MISCONFIGURED}),
    "media extensions twice": (
        lambda scene: (
            mig(scene.card(0), resource(TRAINING, "1g.18gb+me"), layout=counts(**{"1g_18gb+me": 2, "7g_141gb": 1})),
        ),
        {0: MISCONFIGURED},
    ),
    "profiles without a resource": (
        lambda scene: (mig(scene.card(0), resource(TRAINING), layout=counts(**{"3g_71gb": 2})),),
        {0: MISCONFIGURED},
    ),
    "resources for other profiles": (
        lambda scene: (
            mig(
                scene.card(0),
                *(resource(f"{TRAINING}.{number}", f"{number + 2}g.71gb") for number in range(16)),
                profile="1g.18gb",
            ),
        ),
        {0: MISCONFIGURED},
    ),
    "a resource of Kubernetes' own": (
        lambda scene: (exclusive(scene.card(0), "cpu"), exclusive(scene.card(1), "kubernetes.io/gpu")),
        {0: MISCONFIGURED, 1: MISCONFIGURED},
    ),
    "names that are no names": (
        lambda scene: (exclusive(scene.card(0), "x" * 253), exclusive(scene.card(1), "Ünsinn \t/\n")),
        {0: MISCONFIGURED, 1: MISCONFIGURED},
    ),
    "another vendor's resource": (lambda scene: (exclusive(scene.card(0), "nvidia.com/odd"),), {}),
    "nothing at all": (lambda _scene: (), {}),
}


def answered(scene: AgentScene) -> bool:
    state = scene.state()
    told = state["status"].get("plugin", {}).get("observedGeneration")
    return bool(told == state["metadata"]["generation"])


def expected(scene: AgentScene, order: tuple[Assignment, ...], reasons: dict[int | None, str]) -> dict[str, str]:
    """The problems by card; None stands for all cards that are not there."""
    there = {scene.card(0), scene.card(1)}
    strangers = {
        each.inventory_id: reasons[None] for each in order if None in reasons and each.inventory_id not in there
    }
    return strangers | {scene.card(index): reason for index, reason in reasons.items() if index is not None}


def problems(scene: AgentScene) -> dict[str, str]:
    return {each["inventoryID"]: each["reason"] for each in scene.state()["status"]["plugin"].get("problems", [])}


def stays_up(scene: AgentScene, pid: int) -> bool:
    return scene.agent is not None and scene.agent.pid == pid and scene.agent.poll() is None


def test_every_order_is_answered_and_a_good_one_still_works_afterwards(scene: AgentScene) -> None:
    assert scene.agent is not None
    pid = scene.agent.pid
    for name, (make, reasons) in ORDERS.items():
        order = make(scene)
        scene.order(*order)
        wanted = expected(scene, order, reasons)
        until(lambda: answered(scene) and problems(scene) == wanted, within=90)  # noqa: B023 - called at once
        assert stays_up(scene, pid), name
    scene.order(exclusive(scene.card(0), TRAINING), exclusive(scene.card(1), TRAINING))
    scene.wait_offered(TRAINING, 2)
    scene.stage.run_pod("sane", limits={TRAINING: 1})
    assert len(scene.cards_in("sane")) == 1
    assert stays_up(scene, pid)


def test_a_resource_in_anothers_domain_that_we_no_longer_serve_is_no_rival(scene: AgentScene) -> None:
    """The Node shows it for a while after it was withdrawn, and other cards must not suffer from that."""
    odd = "nvidia.com/odd"
    scene.stage.kubectl("delete", "pods", "--all", "--wait")
    scene.order(exclusive(scene.card(0), odd), exclusive(scene.card(1), TRAINING))
    scene.wait_offered(odd, 1)
    scene.order(exclusive(scene.card(0), TRAINING), exclusive(scene.card(1), TRAINING))
    scene.wait_offered(TRAINING, 2)
    scene.wait_offered(odd, 0)
    rivals = scene.stage.kubectl(
        "get", "events", "-A", "--field-selector", "reason=ConflictingDevicePlugin", "-o", "name"
    )
    assert rivals == ""


def test_a_mode_of_a_later_release_is_refused_by_the_api_of_this_one(scene: AgentScene) -> None:
    order = exclusive(scene.card(0), TRAINING)
    with pytest.raises(AssertionError, match="MPS"):
        scene.order(msgspec.structs.replace(order, allocation=Allocation(mode=Mode("MPS"))))


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
def test_hardware_that_makes_no_sense_changes_nothing(scene: AgentScene, text: str) -> None:
    assert scene.agent is not None
    pid, told = scene.agent.pid, warnings(scene)
    annotate(scene, text)
    until(lambda: warnings(scene) > told)
    assert stays_up(scene, pid)
    assert scene.allocatable(TRAINING) == 2
    annotate(scene, good(scene))


def test_an_agent_that_starts_without_sensible_hardware_waits_for_it(scene: AgentScene) -> None:
    scene.stop_agent()
    annotate(scene, "nonsense")
    scene.start_agent()
    assert scene.agent is not None
    pid = scene.agent.pid
    settle(3)
    assert stays_up(scene, pid)
    annotate(scene, good(scene))
    scene.wait_offered(TRAINING, 2)
    assert stays_up(scene, pid)


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
def test_labels_pause_the_agent_only_when_they_say_so(scene: AgentScene, value: str, heeded: bool) -> None:
    assert scene.agent is not None
    pid = scene.agent.pid
    scene.stage.kubectl("label", "node", scene.node.name, "--overwrite", f"{DEPLOY}={value}")
    try:
        if heeded:
            until(lambda: scene.state()["status"].get("quiesced", {}).get("reason") == value)
        else:
            settle(1)
            assert "quiesced" not in scene.state()["status"]
    finally:
        scene.stage.kubectl("label", "node", scene.node.name, f"{DEPLOY}-")
    until(lambda: "quiesced" not in scene.state()["status"])
    scene.wait_offered(TRAINING, 2)
    assert stays_up(scene, pid)


def annotate(scene: AgentScene, text: str) -> None:
    scene.stage.kubectl("annotate", "node", scene.node.name, "--overwrite", f"{HARDWARE}={text}")


def good(scene: AgentScene) -> str:
    return msgspec.json.encode(scene.machine).decode()


def warnings(scene: AgentScene) -> int:
    lines = (scene.node.logs / "agent.log").read_text().rpartition("\n")[0].splitlines()
    return sum(
        json.loads(line).get("event") == "the hardware stays as it was" for line in lines if line.startswith("{")
    )
