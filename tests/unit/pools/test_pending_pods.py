"""The sentence about a Pod that waits for cards: what is free, and what would help."""

import msgspec
import pytest

from gpu_control_plane.api.examples import pool
from gpu_control_plane.api.gpupool import GPUPool, PoolPhase, Units
from gpu_control_plane.api.pod import Container, ContainerResources, Pod, PodSpec
from gpu_control_plane.kube.conditions import FALSE
from gpu_control_plane.pools.pending_pods import pending_message

TRAINING = "gpu.deckhouse.io/training"
CARD = "worker-3-0000-18-00-0"


def pod(resource: str, count: str = "1") -> Pod:
    container = Container(resources=ContainerResources(limits={resource: count}))
    return Pod(spec=PodSpec(containers=(container,)))


def training(*, total: int, available: int, phase: PoolPhase = PoolPhase.READY) -> GPUPool:
    made = pool()
    units = Units(total=total, used=total - available, reserved=0, available=available, faulted=0)
    wrong = msgspec.structs.replace(made.status.conditions[0], status=FALSE, message="another has its name")
    status = msgspec.structs.replace(made.status, units=units, phase=phase, conditions=(wrong,))
    return msgspec.structs.replace(made, status=status)


@pytest.mark.parametrize(
    ("waiting", "found", "approvable", "sentence"),
    [
        (pod("cpu"), None, [], None),
        (pod("gpu.deckhouse.io/other"), None, [], "there is no pool with the resource gpu.deckhouse.io/other"),
        (pod(TRAINING), training(total=0, available=0), [], "the pool training has no cards; it starts when"),
        (pod(TRAINING), training(total=7, available=0), [], "1 card of the pool training asked for: 0 free, 7 in use"),
        (pod(TRAINING, "4"), training(total=8, available=6), [], "has 6 free, but no single node has 4 cards free"),
        (
            pod(TRAINING),
            training(total=7, available=0),
            [CARD],
            f"1 card waits for approval: `kubectl annotate gpudevice {CARD} gpu.deckhouse.io/assignment=training`",
        ),
        (
            pod(TRAINING),
            training(total=7, available=7, phase=PoolPhase.MISCONFIGURED),
            [],
            "the pool training is misconfigured: another has its name",
        ),
    ],
    ids=["no cards asked for", "no such pool", "empty", "in use", "scattered", "awaiting approval", "misconfigured"],
)
def test_a_pod_that_waits_is_told_what_would_help(
    waiting: Pod, found: GPUPool | None, approvable: list[str], sentence: str | None
) -> None:
    pools = {TRAINING: found} if found is not None else {}
    message = pending_message(waiting, pools, {"training": approvable})
    assert message is None if sentence is None else sentence in (message or "")
