"""The Node carries the labels that NVIDIA's feature discovery would give it."""

import pytest

from blocking_wait import until
from gpu.card_env import CardEnv
from gpu.record import Record
from gpu.smi import Smi

_PREFIX = "nvidia.com/"
_ON_AN_H200 = {
    "gpu.product": "NVIDIA-H200",
    "gpu.count": "1",
    "gpu.replicas": "1",
    "gpu.family": "hopper",
    "gpu.compute.major": "9",
    "gpu.compute.minor": "0",
    "gpu.mode": "compute",
    "gpu.sharing-strategy": "none",
    "mig.capable": "true",
    "mig.strategy": "none",
    "mps.capable": "false",
    "vgpu.present": "false",
}


def test_the_labels_are_those_of_an_h200(env: CardEnv, smi: Smi, record: Record) -> None:
    if (name := smi.query("name")["name"]) != "NVIDIA H200":
        pytest.skip(f"knows what an H200 is to be labelled with, and this is an {name}")
    until(lambda: f"{_PREFIX}gpu.product" in env.cluster_env.node_object()["metadata"]["labels"])
    labels = env.cluster_env.node_object()["metadata"]["labels"]
    ours = {name.removeprefix(_PREFIX): value for name, value in labels.items() if name.startswith(_PREFIX)}
    version, cuda = smi.query("driver_version")["driver_version"], smi.cuda_version()
    expected = {
        **_ON_AN_H200,
        "gpu.memory": smi.query("memory.total")["memory.total"],
        "cuda.driver-version.full": version,
        **dict(
            zip(
                [f"cuda.driver-version.{part}" for part in ("major", "minor", "revision")],
                version.split("."),
                strict=True,
            )
        ),
        "cuda.runtime-version.full": cuda,
        **dict(zip([f"cuda.runtime-version.{part}" for part in ("major", "minor")], cuda.split("."), strict=True)),
    }
    for name, value in expected.items():
        record.compare(f"label {name}", ours.get(name), value)
    assert {name: ours.get(name) for name in expected} == expected
    assert ours["gfd.timestamp"].isdecimal()
    assert ours["gpu.machine"]
    assert "gpu.clique" not in ours
