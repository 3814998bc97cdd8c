"""What is read on the node to know who holds what: control groups, the kubelet's checkpoint, our own file."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from gpu_control_plane.agent.kubelet.checkpoint import FILE_NAME, read_checkpoint
from gpu_control_plane.agent.node.hold_file import HoldFile
from gpu_control_plane.agent.node.pod_cgroups import PodCgroups
from gpu_control_plane.agent.units import Hold, PodDevices, Unit
from gpu_control_plane.api.allocation import Mode
from waiting import until

UID = "1fb3fb3e-91bd-4bd4-a0e8-e4bb5ff3f2ba"
GONE = "00000000-91bd-4bd4-a0e8-e4bb5ff3f2ba"


def group(path: Path, *, processes: str = "", populated: bool | None = None) -> None:
    path.mkdir(parents=True)
    (path / "cgroup.procs").write_text(processes)
    if populated is not None:
        (path / "cgroup.events").write_text(f"populated {int(populated)}\nfrozen 0\n")


@pytest.mark.parametrize(
    "pod",
    [
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice",
        f"kubepods/besteffort/pod{UID}",
        f"kubepods/pod{UID}",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
        f"some-root/kubepods/burstable/pod{UID}",
    ],
)
@pytest.mark.parametrize("populated", [True, False])
def test_a_pod_lives_while_its_group_is_populated(tmp_path: Path, pod: str, populated: bool) -> None:
    (tmp_path / "cgroup.controllers").touch()
    group(tmp_path / pod, populated=populated)
    assert PodCgroups(tmp_path).living({UID, GONE}) == ({UID} if populated else set())


def test_in_version_1_any_group_below_counts(tmp_path: Path) -> None:
    pod = tmp_path / "pids" / "kubepods" / "burstable" / f"pod{UID}"
    group(pod)
    group(pod / "abc", processes="")
    cgroups = PodCgroups(tmp_path)
    assert cgroups.living({UID}) == set()
    (pod / "abc" / "cgroup.procs").write_text("4711\n")
    assert cgroups.living({UID}) == {UID}


def test_a_node_whose_pods_come_later_is_looked_at_again(tmp_path: Path) -> None:
    cgroups = PodCgroups(tmp_path / "nothing-yet")
    assert cgroups.living({UID}) == set()
    group(tmp_path / "nothing-yet" / "kubepods" / f"pod{UID}", populated=True)
    assert cgroups.living({UID}) == {UID}


async def test_the_begin_and_the_end_of_pods_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    classes = tmp_path / "kubepods.slice" / "kubepods-burstable.slice"
    noticed = 0

    def notice() -> None:
        nonlocal noticed
        noticed += 1

    async def until_there(_seconds: float) -> None:
        classes.mkdir(parents=True)

    watching = asyncio.create_task(PodCgroups(tmp_path, sleep=until_there).watch(notice))
    await until(lambda: classes.exists() and noticed >= 2)
    pod, late = classes / f"kubepods-burstable-pod{UID}.slice", tmp_path / "kubepods.slice" / "besteffort"
    for change in (pod.mkdir, pod.rmdir, late.mkdir, (late / f"pod{UID}").mkdir):
        before = noticed
        change()
        await until(partial(lambda before: noticed > before, before))
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


def test_the_checkpoint_tells_uids_and_devices(tmp_path: Path) -> None:
    entry = {
        "PodUID": UID,
        "ContainerName": "main",
        "ResourceName": "gpu.deckhouse.io/training",
        "DeviceIDs": {"-1": ["GPU-b"], "0": ["GPU-a"], "1": None},
        "AllocResp": "CkIKBwo=",
    }
    written = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
    (tmp_path / FILE_NAME).write_text(json.dumps(written))
    assert read_checkpoint(tmp_path) == (PodDevices(UID, "gpu.deckhouse.io/training", ("GPU-a", "GPU-b")),)


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"Data": {"PodDeviceEntries": [{"PodUID": 1}]}}'])
def test_a_checkpoint_that_makes_no_sense_counts_as_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / FILE_NAME).write_text(content)
    assert read_checkpoint(tmp_path) is None


def test_an_empty_checkpoint_is_one(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"Data": {"PodDeviceEntries": null, "RegisteredDevices": null}, "Checksum": 1}')
    assert read_checkpoint(tmp_path) == ()


def test_the_next_agent_reads_what_the_last_one_wrote(tmp_path: Path) -> None:
    holds = frozenset({Hold(Unit("a/b", "GPU-a::1g@0", "card", Mode.MIG, (0, 1)), UID, "team/trainer")})
    file = HoldFile(tmp_path / "state")
    assert file.load() == frozenset()
    file.save(holds)
    assert HoldFile(tmp_path / "state").load() == holds


def test_an_unchanged_hold_is_not_written_again(tmp_path: Path) -> None:
    file = HoldFile(tmp_path)
    file.save(frozenset())
    (tmp_path / "holds.json").unlink()
    file.save(frozenset())
    assert not (tmp_path / "holds.json").exists()


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "holds.json").write_text("[{")
    file = HoldFile(tmp_path)
    assert file.load() == frozenset()
    file.save(frozenset())
    assert (tmp_path / "holds.json").read_text() == "[]"
