"""`kubectl gpu usage` and the console's plots from a real Prometheus that holds a day of known measurements."""

import os
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_control_plane.api.gpudevice import PCI, DeviceSpec, DeviceStatus, GPUDevice, Hardware, Vendor
from gpu_control_plane.console.prometheus_history import PrometheusHistory
from gpu_control_plane.kube.objects import ObjectMeta
from gpu_control_plane.local.ports import LOOPBACK, free_port
from gpu_control_plane.usage.hours import By, UsageRow
from gpu_control_plane.usage.prometheus import PrometheusAt, PrometheusError
from gpu_control_plane.usage.reading import Usage, usage_from_prometheus
from waiting import until_async

DAY = timedelta(days=1)
_STEP = 60
_HOUR = 3600
CLOSE = pytest.approx
"""A series that ends is seen for up to five minutes longer."""


def _series(name: str, labels: dict[str, str], hours: float, value: float, now: int) -> list[str]:
    """Samples of the last `hours`, up to half an hour ago."""
    text = ",".join(f'{key}="{held}"' for key, held in labels.items())
    end = now - _HOUR // 2
    return [f"{name}{{{text}}} {value} {at}" for at in range(end - int(hours * _HOUR), end, _STEP)]


def _holder(card: str, pod: str, *, model: str = "NVIDIA H200", **more: str) -> dict[str, str]:
    namespace, _, name = pod.partition("/")
    identity = {"UUID": f"GPU-{card}", "Hostname": f"node-{card}", "modelName": model}
    return {**identity, "namespace": namespace, "pod": name, "container": "main", **more}


def _measurements(now: int) -> str:
    """Who held which card for how long, and how busy it was."""
    mig = {"GPU_I_PROFILE": "1g.18gb", "GPU_I_ID": "9"}
    holders = [
        (_holder("a", "team-a/train-0"), 10.0, 80.0),
        (_holder("b", "team-b/notebook"), 20.0, 0.0),
        (_holder("c", "team-a/left"), 7.0, 20.0),
        (_holder("c", "team-a/right"), 7.0, 20.0),
        (_holder("e", "team-d/unknown", model="NVIDIA L4"), 5.0, None),
    ]
    free, busy, engine = [], [], _series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", _holder("d", "team-c/m", **mig), 14, 0.5, now)
    for labels, hours, percent in holders:
        free += _series("DCGM_FI_DEV_FB_FREE", labels, hours, 1000, now)
        busy += _series("DCGM_FI_DEV_GPU_UTIL", labels, hours, percent, now) if percent is not None else []
    free += _series("DCGM_FI_DEV_FB_FREE", _holder("d", "team-c/m", **mig), 14, 1000, now)
    free += _series("DCGM_FI_DEV_FB_FREE", {"UUID": "GPU-z", "Hostname": "z", "modelName": "idle"}, 23, 1000, now)
    made = {"namespace": "team-a", "pod": "train-0", "owner_kind": "Job", "owner_name": "train"}
    owner = _series("kube_pod_owner", made, 10, 1, now)
    parts = {
        "DCGM_FI_DEV_FB_FREE": free,
        "DCGM_FI_DEV_GPU_UTIL": busy,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": engine,
        "kube_pod_owner": owner,
        "gpupool_capacity_total": _series("gpupool_capacity_total", {"pool": "training"}, 3, 8, now),
        "gpupool_capacity_used": _series("gpupool_capacity_used", {"pool": "training"}, 3, 5, now),
    }
    lines = [line for name, samples in parts.items() for line in (f"# TYPE {name} gauge", *samples)]
    return "\n".join((*lines, "# EOF", ""))


@pytest.fixture(scope="module")
def url(prometheus: Path, promtool: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that scrapes nothing and knows the last day."""
    folder = tmp_path_factory.mktemp("usage")
    (folder / "day.txt").write_text(_measurements(int(time.time())))
    blocks = (promtool, "tsdb", "create-blocks-from", "openmetrics", folder / "day.txt", folder / "data")
    subprocess.run(blocks, check=True, capture_output=True)
    (folder / "prometheus.yaml").write_text("{}\n")
    address = f"{LOOPBACK}:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            (
                *(prometheus, f"--config.file={folder / 'prometheus.yaml'}"),
                *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"),
            ),
            env={**os.environ},
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait(10)


async def _answering(url: str) -> None:
    async def answers() -> bool:
        try:
            return bool(await PrometheusAt(url).ask("vector(1)"))
        except PrometheusError:
            return False

    await until_async(answers, saying="Prometheus answers")


async def usage(url: str, by: By, pools: dict[str, str] | None = None) -> Usage:
    await _answering(url)
    return await usage_from_prometheus(PrometheusAt(url), by, DAY, pools)


def rows(found: Usage) -> dict[str, UsageRow]:
    return {row.key: row for row in found.rows}


async def test_hours_held_used_idle_and_wasted_are_what_was_measured(url: str) -> None:
    found = await usage(url, By.NAMESPACE)
    by_key = rows(found)
    assert by_key.keys() == {"team-a", "team-b", "team-c", "team-d"}
    team = by_key["team-a"]  # one card of its own, and one that two of its pods share
    assert [team.held, team.used, team.idle, team.waste] == CLOSE([17, 10.8, 0, 6.2], abs=0.3)
    idle = by_key["team-b"]
    assert [idle.held, idle.idle, idle.used, idle.share] == CLOSE([20, 20, 0, 0], abs=0.2)
    instance = by_key["team-c"]  # a seventh of a card, half busy
    assert [instance.held, instance.used] == CLOSE([2, 1], abs=0.05)
    silent = by_key["team-d"]
    assert silent.used is None
    assert [silent.held, silent.unmeasured] == CLOSE([5, 5], abs=0.2)
    assert found.covered == CLOSE(23, abs=0.5)
    assert any("not measured" in note for note in found.notes)
    assert any("of these 24 hours only" in note for note in found.notes)


async def test_hours_are_added_up_as_asked(url: str) -> None:
    nodes = rows(await usage(url, By.NODE))
    assert nodes.keys() == {f"node-{card}" for card in "abcde"}
    assert nodes["node-c"].held == CLOSE(7, abs=0.2)
    models = rows(await usage(url, By.MODEL))
    assert models["NVIDIA L4"].held == CLOSE(5, abs=0.2)
    owners = rows(await usage(url, By.OWNER))
    assert owners["team-a/Job/train"].used == CLOSE(8, abs=0.2)
    assert "team-b/Pod/notebook" in owners
    pools = rows(await usage(url, By.POOL, {"GPU-a": "training", "GPU-b": "training"}))
    assert pools["training"].held == CLOSE(30, abs=0.4)
    assert pools["unknown"].held == CLOSE(14, abs=0.4)


async def test_plots_show_what_was_measured(url: str) -> None:
    await _answering(url)
    console = PrometheusHistory(url)
    pool = await console.of_pool("training")
    assert {(sample.total, sample.used) for sample in pool} == {(8, 5)}
    assert len(pool) == CLOSE(3 * 12, abs=2)
    shared = await console.of_card(_card("c"))  # two pods, a fifth of it each
    busy = [read.utilisation for read in shared]
    assert set(busy) == {40, None}
    assert busy.count(40) == CLOSE(7 * 12, abs=2)
    assert busy[-1] is None, "nothing was measured in the last half hour"
    assert await console.of_card(_card("unknown")) == ()


def _card(name: str) -> GPUDevice:
    address = "0000:18:00.0"
    pci = PCI(vendor="10de", device="2335", class_="0302", address=address)
    hardware = Hardware(vendor=Vendor.NVIDIA, product="NVIDIA H200", uuid=f"GPU-{name}", pci=pci)
    return GPUDevice(
        metadata=ObjectMeta(name=name),
        spec=DeviceSpec(node_name=f"node-{name}", pci_address=address),
        status=DeviceStatus(hardware=hardware),
    )


async def test_what_is_no_prometheus_says_so() -> None:
    with pytest.raises(PrometheusError, match="does not answer"):
        await PrometheusAt(f"http://{LOOPBACK}:{free_port()}").ask("1")
