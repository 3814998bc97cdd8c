"""`kubectl gpu simulate` as a person types it."""

import asyncio

import pytest
from msgspec.structs import replace

from gpu_control_plane.agent.fleet.machines import edit_node
from gpu_control_plane.agent.simulated.machine import HARDWARE, card_uuid
from gpu_control_plane.agent.simulated.state import CardState, InstanceRecord
from gpu_control_plane.agent.views import NodeView
from gpu_control_plane.cli.main import run
from gpu_control_plane.kube import Client, load_config
from gpu_control_plane.local import Cluster


@pytest.fixture(autouse=True)
def _use_the_cluster(simulated_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(simulated_cluster.kubeconfig))


def test_nodes_are_added_once_broken_and_mended(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "nodes", "--count", "2", "--profile", "A100-80", "--cards", "4", "--prefix", "cli"]) == 0
    assert "2 nodes with 4 x A100-80 added." in capsys.readouterr().out
    assert run(["simulate", "nodes", "--count", "2", "--profile", "A100-80", "--cards", "4", "--prefix", "cli"]) == 0
    assert "Nothing was added; 2 nodes existed already." in capsys.readouterr().out
    assert run(["simulate", "nodes", "--count", "1", "--profile", "L40S", "--prefix", "cli"]) == 0
    assert "Other hardware was kept: cli-1 (4 x A100-80)." in capsys.readouterr().out

    for arguments in (
        ["xid", "cli-1-0000-18-00-0", "79"],
        ["ecc", "cli-1-0000-2a-00-0"],
        ["lose", "cli-1/0000:3A:00.0"],
        ["swap", "cli-2-0000-18-00-0"],
        ["slow", "cli-2", "30"],
        ["reinstall", "cli-2"],
    ):
        assert run(["simulate", *arguments]) == 0
    capsys.readouterr()
    assert run(["simulate", "list"]) == 0
    shown = capsys.readouterr().out
    faults = "0000:18:00.0: XID 79; 0000:2a:00.0: 1 memory error; 0000:3a:00.0: lost from the bus"
    assert faults in shown
    assert "0000:18:00.0: swapped 1x; slow by 30 s; reinstalled 1x" in shown

    assert run(["simulate", "heal", "cli-1/0000:18:00.0"]) == 0
    hint = "kubectl annotate gpudevice cli-1-0000-18-00-0 gpu.deckhouse.io/clear-fault=done"
    assert hint in capsys.readouterr().out
    assert run(["simulate", "list", "--cards"]) == 0
    assert "XID 79" not in capsys.readouterr().out


def test_hardware_that_cannot_be_read_is_named_and_can_be_written_anew(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "nodes", "--count", "2", "--prefix", "torn", "--cards", "1"]) == 0
    asyncio.run(_annotate("torn-1", '{"profile": "H200-141", "cards": 1, "slowSeconds": null}'))
    assert run(["simulate", "xid", "torn-2-0000-18-00-0", "79"]) == 0
    capsys.readouterr()
    assert run(["simulate", "list"]) == 0
    shown = capsys.readouterr().out
    assert "of node torn-1 cannot be understood" in shown
    assert "0000:18:00.0: XID 79" in shown
    assert run(["simulate", "nodes", "--count", "2", "--prefix", "torn", "--cards", "1"]) == 0
    assert "1 node that existed got 1 x H200-141; 1 node existed already." in capsys.readouterr().out
    assert run(["simulate", "list"]) == 0
    assert "cannot be understood" not in capsys.readouterr().out


async def _annotate(node: str, document: str) -> None:
    async with Client(load_config()) as client:
        await client.patch(NodeView, node, {"metadata": {"annotations": {HARDWARE: document}}})


def test_the_list_shows_mig_instances(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "nodes", "--prefix", "cut", "--cards", "2"]) == 0
    asyncio.run(_partition("cut-1", "0000:18:00.0"))
    capsys.readouterr()
    assert run(["simulate", "list", "--cards"]) == 0
    shown = {line.split()[1]: line.split()[3:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert shown["cut-1-0000-18-00-0"] == ["3g.71gb", "1g.18gb"]
    assert shown["cut-1-0000-2a-00-0"] == ["-"]


async def _partition(node: str, address: str) -> None:
    """What the simulated fleet writes into the node's hardware after it has partitioned a card."""
    records = (InstanceRecord("3g.71gb", 0, 4, 0, 1), InstanceRecord("1g.18gb", 4, 1, 1, 2))
    state = CardState(uuid=card_uuid(node, address, 0), enabled=True, created=2, instances=records)
    async with Client(load_config()) as client:
        await edit_node(client, node, lambda machine: replace(machine, state={address: state}))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["xid", "nobody-0000-18-00-0", "79"], "No simulated node has a card nobody-0000-18-00-0."),
        (["lose", "nobody/nonsense"], "'nonsense' is no PCI address"),
        (["slow", "nobody", "3"], "There is no node nobody."),
        (["slow", "cli-1", "nan"], "A node reacts within 0 to 3600 seconds, not nan."),
        (["nodes", "--profile", "Voodoo2"], "There is no profile Voodoo2. Choose one of A100-80, "),
        (["nodes", "--cards", "99"], "A simulated node has 1 to 16 cards, not 99."),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *arguments]) == 1
    assert sentence in capsys.readouterr().err
