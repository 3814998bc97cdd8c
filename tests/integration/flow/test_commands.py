"""What `kubectl gpu` shows of a running fleet, on a real API server: tables as a terminal has them, every format, what
changes while one looks, and a part of the answer for whoever may not read all of it."""

import asyncio
import csv
import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from gpu_control_plane.api.names import Label
from gpu_control_plane.api.node import Node
from gpu_control_plane.api.nvidia import ClusterPolicy
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.cli.exit_codes import ExitCode
from integration.flow.env import FlowEnv, units_of
from integration.kinds import Pod
from integration.tenant import Tenant, tenant
from waiting import until_async

FIRST, SECOND, THIRD = (f"node-a-0000-{slot}-00-0" for slot in ("18", "2a", "3a"))
LAST = "node-b-0000-5d-00-0"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.out)


async def gpu(env: FlowEnv, *arguments: str, kubeconfig: Path | None = None) -> Ran:
    """Run a command of `kubectl gpu` to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpu_control_plane.cli", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=_environ(env, kubeconfig),
    )  # fmt: skip
    out, err = await process.communicate()
    return Ran(process.returncode or 0, out.decode(), err.decode())


async def on_terminal(env: FlowEnv, *arguments: str, columns: int, lines: int = 40) -> str:
    """What a terminal of this size shows of a command."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environ = _environ(env) | {"COLUMNS": str(columns), "LINES": str(lines), "TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "gpu_control_plane.cli", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=slave, stderr=asyncio.subprocess.DEVNULL, env=environ
    )
    os.close(slave)
    shown = b""
    while chunk := await asyncio.to_thread(_read, master):
        shown += chunk
    os.close(master)
    await process.wait()
    return shown.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the program has ended
        return b""


def _environ(env: FlowEnv, kubeconfig: Path | None = None) -> dict[str, str]:
    nowhere = {"GPU_CONTROL_PLANE_STATE": str(env.cluster.kubeconfig.parent / "no-local-cluster")}
    return {**os.environ, **nowhere, "KUBECONFIG": str(kubeconfig or env.cluster.kubeconfig)}


def rows(table: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line) for line in table.splitlines()]


async def start_pod(env: FlowEnv, name: str, pool: str, cards: int, namespace: str = "default") -> None:
    limits = {f"gpu.deckhouse.io/{pool}": str(cards)}
    container = {"name": "main", "image": "any", "resources": {"limits": limits}}
    await env.client.create(Pod, {"metadata": {"name": name}, "spec": {"containers": [container]}}, namespace)


async def test_commands_show_the_fleet_as_it_is(env: FlowEnv, tmp_path: Path) -> None:
    # Before anything is there, each says why it is empty and what to type.
    nothing = await gpu(env, "devices")
    assert (nothing.code, nothing.out) == (0, "")
    assert "kubectl gpu nodes" in nothing.err
    assert "NoNodes" in {todo["kind"] for todo in (await gpu(env, "status", "-o", "json")).data["todo"]}

    await env.start_controller("--timing", "pools.pendingPodInterval=1s")
    await env.add_nodes("node-a", "node-b", cards=4)
    await env.devices_known(8)
    await env.add_pool("training", quotas=[{"namespace": "default", "units": 7}])
    for name in sorted(await env.devices())[:6]:
        await env.approve(name, "training")
    await env.pool_is("training", lambda pool: units_of(pool).available == 6)
    await start_pod(env, "train-0", "training", 2)
    await env.pod_is("train-0", "Running")
    await env.pool_is("training", lambda pool: units_of(pool).used == 2)
    await start_pod(env, "greedy", "training", 5)  # more than a node has
    await env.client.patch(Node, "node-a", {"spec": {"unschedulable": True}})
    await tables_fit_a_terminal(env)
    await formats_agree(env)
    await questions_are_answered(env)
    await changes_are_followed(env)
    await upgrades_are_paused(env)
    async with tenant(env.client, env.cluster.kubeconfig, tmp_path) as somebody:
        await a_tenant_sees_a_part(env, somebody)


async def tables_fit_a_terminal(env: FlowEnv) -> None:
    for command in ("nodes", "devices", "devices --pending", "pools", "pods", "top --once", "status"):
        for columns in (80, 200):
            shown = await on_terminal(env, *command.split(), columns=columns)
            assert shown, command
            assert all(len(line) <= columns for line in shown.splitlines()), shown
            assert "\x1b" not in shown
    narrow = await on_terminal(env, "devices", columns=80)
    wide = await on_terminal(env, "devices", "-o", "wide", columns=200)
    assert rows(narrow)[0][:4] == ["NAME", "MODEL", "STATE", "POOL"]
    assert "UUID" in wide
    assert "2/8 held" in await _live_top(env)


async def _live_top(env: FlowEnv) -> str:
    """What `top` draws first on a terminal, before it is ended like by Ctrl-C."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-m", "gpu_control_plane.cli", "top"]
    environ = _environ(env) | {"TERM": "xterm", "LINES": "24", "COLUMNS": "100"}
    process = await asyncio.create_subprocess_exec(*command, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    shown = b""
    while b"node-b" not in shown and (chunk := await asyncio.to_thread(_read, master)):
        shown += chunk
    process.send_signal(2)
    while await asyncio.to_thread(_read, master):
        pass
    os.close(master)
    assert await process.wait() == ExitCode.INTERRUPTED
    return shown.decode()


async def formats_agree(env: FlowEnv) -> None:
    """Every format is about the same cards."""
    names = sorted(await env.devices())
    as_json = (await gpu(env, "devices", "-o", "json")).data
    assert [item["name"] for item in as_json["items"]] == names
    assert as_json["missing"] == []
    assert yaml.safe_load((await gpu(env, "devices", "-o", "yaml")).out)["items"] == as_json["items"]
    as_names = (await gpu(env, "devices", "-o", "name")).out.split()
    assert as_names == [f"gpudevice.gpu.deckhouse.io/{name}" for name in names]
    as_csv = list(csv.DictReader(io.StringIO((await gpu(env, "devices", "-o", "csv")).out)))
    assert [row["name"] for row in as_csv] == names
    assert [row[0] for row in rows((await gpu(env, "devices")).out)[1:]] == names


async def questions_are_answered(env: FlowEnv) -> None:
    """By one command each."""
    pending = (await gpu(env, "devices", "--pending", "-o", "json")).data["items"]
    assert {(card["node"], card["reason"]) for card in pending} == {("node-b", "AwaitingApproval")}
    assert len((await gpu(env, "devices", "--node", "node-a", "-o", "name")).out.split()) == 4
    assert len((await gpu(env, "devices", "--state", "assigned", "-o", "name")).out.split()) == 6
    assert len((await gpu(env, "devices", "-l", f"{Label.NODE}=node-b", "-o", "name")).out.split()) == 4
    nodes = {row["name"]: row for row in (await gpu(env, "nodes", "-o", "json")).data["items"]}
    assert {name: (row["state"], row["cards"]) for name, row in nodes.items()} == {
        "node-a": ("Cordoned", 4),
        "node-b": ("Ready", 4),
    }
    (pool,) = (await gpu(env, "pools", "-o", "json")).data["items"]
    assert (pool["total"], pool["used"], pool["free"]) == (6, 2, 4)
    # The pod that waits counts for the quota as soon as it exists: 7 less 2 and 5 leave nothing.
    assert (pool["obtainable"], pool["resources"][0]["obtainable"]["quotaLeft"]) == (0, 0)
    pods = {row["name"]: row for row in (await gpu(env, "pods", "-o", "json")).data["items"]}
    assert (pods["train-0"]["status"], pods["train-0"]["resources"]) == ("Holds", {"gpu.deckhouse.io/training": 2})
    explained = (await gpu(env, "explain", "pod", "greedy", "-o", "json")).data
    assert (pods["greedy"]["status"], pods["greedy"]["reason"]) == ("Waits", explained["cause"])
    everywhere = await gpu(env, "pods", "-A", "--waiting")
    assert [row[:2] for row in rows(everywhere.out)] == [["NAMESPACE", "NAME"], ["default", "greedy"]]
    status = await gpu(env, "status", "-o", "json")
    assert status.code == ExitCode.FINDINGS
    assert {"CardsAwaitApproval", "PodsWait"} <= {todo["kind"] for todo in status.data["todo"]}
    assert (await gpu(env, "explain", "pool", "nowhere")).code == ExitCode.ABSENT
    assert (await gpu(env, "upgrade", "status")).code == ExitCode.OK
    complete = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from gpu_control_plane.cli.completion import main; main()", "devices", "--pool", "t",
        stdout=asyncio.subprocess.PIPE, env=_environ(env),
    )  # fmt: skip
    assert (await complete.communicate())[0].decode() == "training\n:4\n"


async def changes_are_followed(env: FlowEnv) -> None:
    """`--watch` prints a row again when it changes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpu_control_plane.cli", "devices", "--watch", "-o", "json",
        stdout=asyncio.subprocess.PIPE, env=_environ(env),
    )  # fmt: skip
    assert process.stdout is not None
    first = [msgspec.json.decode(await process.stdout.readline()) for _ in range(8)]
    assert sorted(row["name"] for row in first) == sorted(await env.devices())
    await env.approve(LAST, "training")
    async with asyncio.timeout(60):
        while True:
            row = msgspec.json.decode(await process.stdout.readline())
            if row["name"] == LAST and row["pool"] == "training":
                break
    process.terminate()
    await process.communicate()
    # A reader that has had enough, as in `| head -1`, ends it without a word.
    piped = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m gpu_control_plane.cli nodes --watch | head -1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environ(env),
    )
    assert piped.stdout is not None
    assert (await piped.stdout.readline()).startswith(b"NAME")
    await env.client.patch(Node, "node-a", {"spec": {"unschedulable": False}})
    assert (await piped.communicate())[1] == b""


async def upgrades_are_paused(env: FlowEnv) -> None:
    """As the operator reads it: in the policy, or by the label of one node."""
    sections = (
        "operator",
        "daemonsets",
        "toolkit",
        "devicePlugin",
        "dcgm",
        "dcgmExporter",
        "nodeStatusExporter",
        "gfd",
    )
    driver = {"upgradePolicy": {"autoUpgrade": True}}
    body = {"metadata": {"name": "policy"}, "spec": {**{name: {} for name in sections}, "driver": driver}}
    await env.client.create(ClusterPolicy, body)
    for command, paused in (("pause", True), ("pause", True), ("resume", False)):
        assert (await gpu(env, "upgrade", command)).code == ExitCode.OK
        policy = (await env.client.get(ClusterPolicy, "policy")).spec.driver.upgrade_policy
        assert policy is not None
        assert (policy.auto_upgrade, policy.paused) == (True, paused)
    assert (await gpu(env, "upgrade", "pause", "--node", "node-b")).code == ExitCode.OK
    assert (await env.client.get(Node, "node-b")).metadata.labels[NodeLabel.UPGRADE_SKIP] == "true"
    assert (await gpu(env, "upgrade", "resume", "--node", "node-b")).code == ExitCode.OK
    assert NodeLabel.UPGRADE_SKIP not in (await env.client.get(Node, "node-b")).metadata.labels
    assert (await gpu(env, "upgrade", "pause", "--node", "nowhere")).code == ExitCode.ABSENT


async def a_tenant_sees_a_part(env: FlowEnv, somebody: Tenant) -> None:
    """Who may read pods of one namespace and nothing of ours is told what is missing."""
    refused = await gpu(env, "devices", kubeconfig=somebody.kubeconfig)
    assert refused.code == ExitCode.PARTIAL
    assert "gpudevices.gpu.deckhouse.io" in refused.err
    own = await gpu(env, "pods", "-n", somebody.namespace, "-o", "json", kubeconfig=somebody.kubeconfig)
    assert own.code == ExitCode.PARTIAL
    assert own.data["items"] == []
    await start_pod(env, "mine", "training", 1, somebody.namespace)

    async def shows_its_own_pod() -> bool:
        found = await gpu(env, "pods", "-n", somebody.namespace, "-o", "json", kubeconfig=somebody.kubeconfig)
        return [(row["name"], row["load"]) for row in found.data["items"]] == [("mine", "Held")]

    await until_async(shows_its_own_pod, saying="a tenant sees the pod that runs in its namespace")
    assert "gpudevices.gpu.deckhouse.io" in {each["kind"] for each in own.data["missing"]}
    # An administrator sees the same by acting as the tenant.
    user = yaml.safe_load(somebody.kubeconfig.read_text())["users"][0]["user"]["as"]
    assert (await gpu(env, "devices", "--as", user)).err == refused.err
