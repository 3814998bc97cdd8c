"""From a PID to a container, as kernels, runtimes and kubelets of all kinds write it down."""

from pathlib import Path

import pytest

from gpu_control_plane.agent.exporter.processes import (
    ContainerName,
    PodCgroup,
    containers_by_id,
    owner_in,
    parse_cgroup,
)

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
STATIC = "7be6a1f0" * 4
ID = "5a" * 32
WITH_DASHES, WITH_LINES = f"pod{UID}", f"pod{UID.replace('-', '_')}"


@pytest.mark.parametrize(
    "text",
    [
        f"0::/kubepods/burstable/{WITH_DASHES}/{ID}\n",
        f"0::/kubepods/{WITH_DASHES}/{ID}/init\n",
        f"0::/kubepods.slice/kubepods-{WITH_LINES}.slice/cri-containerd-{ID}.scope\n",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{WITH_LINES}.slice/crio-{ID}.scope\n",
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-{WITH_LINES}.slice/docker-{ID}.scope/a\n",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-{WITH_LINES}.slice/cri-containerd-{ID}.scope\n",
        f"0::/system.slice/containerd.service/kubepods-burstable-{WITH_LINES}.slice:cri-containerd:{ID}\n",
        f"0::/../../kubepods-besteffort-{WITH_LINES}.slice/cri-containerd-{ID}.scope\n",
        f"12:pids:/\n11:memory:/kubepods/besteffort/{WITH_DASHES}/{ID}\n0::/system.slice/x.service\n",
        f"1:name=systemd:/kubepods.slice/kubepods-{WITH_LINES}.slice/cri-containerd-{ID}.scope\n",
    ],
    ids=[
        "v2 cgroupfs",
        "v2 cgroupfs with a group inside",
        "v2 systemd guaranteed",
        "v2 systemd CRI-O",
        "v2 systemd docker with a group inside",
        "v2 systemd nested kubelet",
        "systemd names under cgroupfs",
        "seen from another cgroup namespace",
        "v1 cgroupfs",
        "v1 systemd",
    ],
)
def test_the_pod_and_container_of_a_process_are_found(text: str) -> None:
    assert parse_cgroup(text) == PodCgroup(UID, ID)


def test_a_static_pod_has_a_hash_for_its_uid() -> None:
    assert parse_cgroup(f"0::/kubepods/burstable/pod{STATIC}/{ID}\n") == PodCgroup(STATIC, ID)


def test_a_process_of_the_pod_in_no_container_is_told_apart() -> None:
    assert parse_cgroup(f"0::/kubepods/burstable/{WITH_DASHES}\n") == PodCgroup(UID, None)


@pytest.mark.parametrize(
    "text", ["", "0::/\n", "0::/user.slice/user-0.slice/session-1.scope\n", f"0::/docker/{ID}\n", "0::/podman\n"]
)
def test_a_process_of_the_host_is_in_no_pod(text: str) -> None:
    assert parse_cgroup(text) is None


def test_an_owner_is_found_by_the_links_the_kubelet_leaves(tmp_path: Path) -> None:
    logs, proc = tmp_path / "containers", tmp_path / "proc"
    assert containers_by_id(logs) == {}
    logs.mkdir()
    (logs / f"trainer-0_team-a_main-loop-{ID}.log").touch()
    (logs / "README").touch()
    for pid, text in ((7, f"0::/kubepods/{WITH_DASHES}/{ID}\n"), (8, "0::/\n"), (9, f"0::/kubepods/{WITH_DASHES}\n")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(text)
    owner = owner_in(containers_by_id(logs), proc)
    found = ContainerName("team-a", "trainer-0", "main-loop")
    assert [owner(pid) for pid in (7, 8, 9, 10)] == [found, None, None, None]
