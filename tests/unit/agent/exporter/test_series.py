"""Who gets which series: whole cards, MIG instances, pods that share, and cards that reported errors."""

from collections.abc import Mapping, Sequence

import pytest

from gpu_control_plane.agent.backends.interface import Process
from gpu_control_plane.agent.backends.measures import Measure
from gpu_control_plane.agent.exporter.catalogue import XID_COUNT
from gpu_control_plane.agent.exporter.exposition import exposition
from gpu_control_plane.agent.exporter.processes import ContainerName
from gpu_control_plane.agent.exporter.series import CardReadings, LabelledCard, bus_id, series, shared
from gpu_control_plane.agent.exporter.xids import Reports, XidLog
from gpu_control_plane.api.gpudevice import User
from unit.agent.exporter.readings import Read, card, instance, read, user

LABELS = {
    "gpu": "0",
    "UUID": "GPU-0",
    "pci_bus_id": "00000000:3A:00.0",
    "device": "nvidia4",
    "modelName": "NVIDIA H200",
    "Hostname": "node-1",
    "DCGM_FI_DRIVER_VERSION": "580.159.04",
}
HERE = "0000:3a:00.0"
SAMPLES: dict[str, float] = {Measure.GPU_TEMP: 31.0, Measure.GPU_UTIL: 90.0, Measure.FB_USED: 5000.0}
OWNERS = {1: "first", 2: "second", 3: "first"}


def owner(pid: int) -> ContainerName | None:
    return ContainerName("team-a", OWNERS[pid], "main") if pid in OWNERS else None


def of_pod(pod: str) -> dict[str, str]:
    return LABELS | {"namespace": "team-a", "pod": pod, "container": "main"}


def told(
    labelled_card: LabelledCard,
    readings: CardReadings,
    users: Mapping[str, Sequence[User]] | None = None,
    reports: Reports | None = None,
) -> Read:
    return read(exposition(series(labelled_card, readings, users or {}, reports, owner)))


def test_a_free_card_has_the_labels_of_dcgm_exporter() -> None:
    found = told(card(), CardReadings(samples=SAMPLES))
    assert found[Measure.GPU_TEMP] == [(LABELS, 31.0)]


@pytest.mark.parametrize(
    ("address", "written"),
    [("0000:3b:00.0", "00000000:3B:00.0"), ("10000:01:00.0", "00010000:01:00.0")],
)
def test_a_bus_id_is_written_as_nvml_writes_it(address: str, written: str) -> None:
    assert bus_id(address) == written


def test_a_card_held_by_one_pod_names_it() -> None:
    found = told(card(), CardReadings(samples=SAMPLES), {HERE: (user("first"),)})
    assert found[Measure.FB_USED] == [(of_pod("first"), 5000.0)]


def test_pods_that_share_a_card_each_see_it_but_only_their_own_use() -> None:
    processes = (
        Process(pid=1, memory_mib=1000, utilisation=20),
        Process(pid=2, memory_mib=3000, utilisation=30),
        Process(pid=3, memory_mib=500, utilisation=5),
    )
    users = {HERE: (user("first"), user("second"), user("third"))}
    found = told(card(), CardReadings(samples=SAMPLES, processes=processes), users)
    pods = [of_pod(pod) for pod in ("first", "second", "third")]
    assert found[Measure.GPU_TEMP] == [(pod, 31.0) for pod in pods]
    assert found[Measure.FB_USED] == list(zip(pods, (1500.0, 3000.0, 0.0), strict=True))
    assert found[Measure.GPU_UTIL] == list(zip(pods, (25.0, 30.0, 0.0), strict=True))


@pytest.mark.parametrize("processes", [None, (Process(pid=1, memory_mib=10), Process(pid=99, memory_mib=10))])
def test_what_cannot_be_told_apart_is_left_out(processes: Sequence[Process] | None) -> None:
    users = {HERE: (user("first"), user("second"))}
    found = told(card(), CardReadings(samples=SAMPLES, processes=processes), users)
    known = [(of_pod("first"), 10.0)] if processes else []
    assert found.get(Measure.FB_USED, []) == known
    assert Measure.GPU_UTIL not in found


def test_a_container_with_two_replicas_of_a_card_is_one_user() -> None:
    users = {HERE: (user("first"), user("first"))}
    assert not shared(card(), users)
    assert shared(card(), {HERE: (user("first"), user("second"))})
    assert told(card(), CardReadings(samples=SAMPLES), users)[Measure.FB_USED] == [(of_pod("first"), 5000.0)]


def test_readings_of_a_cut_card_stand_once_and_those_of_instances_name_them() -> None:
    cut = card(instances=(instance(1), instance(2, "2g.35gb")))
    readings = CardReadings(
        samples={Measure.POWER_USAGE: 300.0},
        instances={"MIG-1": {Measure.FB_USED: 10.0}, "MIG-2": {Measure.FB_USED: 20.0}},
    )
    found = told(cut, readings, {"MIG-2": (user("first"),)})
    assert found[Measure.POWER_USAGE] == [(LABELS, 300.0)]
    assert found[Measure.FB_USED] == [
        (LABELS | {"GPU_I_PROFILE": "1g.18gb", "GPU_I_ID": "1"}, 10.0),
        (of_pod("first") | {"GPU_I_PROFILE": "2g.35gb", "GPU_I_ID": "2"}, 20.0),
    ]


def test_pods_that_share_an_instance_are_told_apart_by_the_programs_on_it() -> None:
    cut = card(instances=(instance(1), instance(2)))
    processes = (Process(pid=1, memory_mib=7, instance="MIG-1"), Process(pid=2, memory_mib=9, instance="MIG-2"))
    readings = CardReadings(samples={}, instances={"MIG-1": SAMPLES}, processes=processes)
    found = told(cut, readings, {"MIG-1": (user("first"), user("second"))})
    assert [(labels["pod"], value) for labels, value in found[Measure.FB_USED]] == [("first", 7.0), ("second", 0.0)]


def test_the_last_xid_stands_until_the_card_is_cleared_and_the_count_stays() -> None:
    log = XidLog()
    seen = []
    for xids in ((), (31,), (31, 79), (31, 79), (), (79,)):
        log.observe(HERE, xids)
        found = told(card(), CardReadings(samples=SAMPLES), reports=log.reports()[HERE])
        counts = {labels["xid"]: value for labels, value in found.get(XID_COUNT, [])}
        seen.append((found[Measure.XID_ERRORS][0][1], counts))
    assert seen == [
        (0, {}),
        (31, {"31": 1}),
        (79, {"31": 1, "79": 1}),
        (79, {"31": 1, "79": 1}),
        (0, {"31": 1, "79": 1}),
        (79, {"31": 1, "79": 2}),
    ]


def test_a_card_that_was_never_probed_tells_no_xid() -> None:
    assert Measure.XID_ERRORS not in told(card(), CardReadings(samples=SAMPLES))


def test_a_lost_card_still_tells_why() -> None:
    found = told(card(), CardReadings(samples={}), reports=Reports(79, {79: 1}))
    assert found == {Measure.XID_ERRORS: [(LABELS, 79)], XID_COUNT: [(LABELS | {"xid": "79"}, 1)]}
