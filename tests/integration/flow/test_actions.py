"""The commands of people on a real API server, with a small simulated fleet: what a dry run tells comes true, who may
not is told so, and what has changed meanwhile is not overwritten."""

import asyncio
import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gpu_control_plane.actions.approvals import plan_approve
from gpu_control_plane.actions.carry_out import carry_out
from gpu_control_plane.api import GPUDevice, GPUPool
from gpu_control_plane.api.gpudevice import DeviceState
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.cli.main import run
from gpu_control_plane.views.reading import read_fleet
from integration.flow.env import FlowEnv, pool_of, units_of
from integration.rbac import GROUP as RBAC
from integration.rbac import ClusterRole, ClusterRoleBinding
from integration.tenant import tenant

FIRST, SECOND = "node-a-0000-18-00-0", "node-a-0000-2a-00-0"
DONE, FAILED, USAGE, ABSENT, FINDINGS, PARTLY = 0, 1, 2, 3, 4, 5


class Ended(msgspec.Struct):
    """How a command ended, and what it said."""

    code: int
    output: str
    errors: str

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.output)


async def gpu(env: FlowEnv, *arguments: str, kubeconfig: Path | None = None) -> Ended:
    """Run `kubectl gpu`, in this process: a new one would take longer to start than most commands to work."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = await asyncio.to_thread(run, [*arguments, "--kubeconfig", str(kubeconfig or env.cluster.kubeconfig)])
    return Ended(code, output.getvalue(), errors.getvalue())


def pool_file(name: str, **spec: object) -> str:
    return yaml.safe_dump(
        {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUPool", "metadata": {"name": name}, "spec": spec}
    )


async def test_what_people_do_leads_to_what_they_were_told(env: FlowEnv, tmp_path: Path) -> None:
    await env.start_controller()
    await env.add_nodes("node-a", "node-b")
    await env.devices_known(4)
    await env.add_pool("training", deviceSelector={"maxDevicesPerNode": 1})
    await env.add_pool("inference")
    await env.pool_is("inference", lambda pool: pool.status.cards and pool.status.cards.selected == 4)
    await approve_one(env)
    await approve_many(env)
    await move_a_card_that_is_in_use(env)
    await retire_and_take_back(env)
    await try_without_rights(env, tmp_path)
    await overtaken_plans_write_nothing(env)
    await preview_and_maintain(env, tmp_path)


async def approve_one(env: FlowEnv) -> None:
    """A dry run says what it leads to, and writes nothing; then that comes true."""
    shown = await gpu(env, "approve", FIRST, SECOND, "--pool", "training", "--dry-run")
    assert shown.code == PARTLY, shown
    assert "training: units 0 → 1 (gpu.deckhouse.io/training)" in shown.output
    assert f"{SECOND}: the pool training takes no more cards of node-a (maxDevicesPerNode: 1)" in shown.errors
    assert not any(Annotation.ASSIGNMENT in card.metadata.annotations for card in (await env.devices()).values())
    approved = await gpu(env, "approve", FIRST, SECOND, "--pool", "training", "--reason", "new rack", "--wait")
    assert approved.code == PARTLY, approved
    assert f"{FIRST}  Done: in the pool training" in approved.output
    await env.pool_is("training", lambda pool: units_of(pool).available == 1)
    first = (await env.devices())[FIRST]
    assert (first.status.history[0].what, first.status.history[0].why) == ("Assigned to training", "new rack")
    await env.device_is(FIRST, lambda device: Annotation.REASON not in device.metadata.annotations)


async def approve_many(env: FlowEnv) -> None:
    """By node, model and label, each to the only pool that could have it; names that do not exist are absent."""
    many = await gpu(env, "approve", "--node", "node-b", "--model", "h200", "-o", "json", "--dry-run")
    assert many.code == FAILED, many
    assert "it could join inference or training" in many.document["plan"]["refusals"][0]["sentence"]
    many = await gpu(env, "approve", "--node", "node-b", "-l", "gpu.deckhouse.io/vendor=NVIDIA", "--pool", "inference")
    assert many.code == DONE, many
    await env.pool_is("inference", lambda pool: units_of(pool).available == 2)
    assert (await gpu(env, "approve", "node-a-0000-19-00-0", "--pool", "training")).code == ABSENT
    assert (await gpu(env, "approve")).code == USAGE


async def move_a_card_that_is_in_use(env: FlowEnv) -> None:
    """It is moved when the pod has ended; whoever looks on may go away, and look again."""
    await env.start_pod("holder", "training")
    await env.pod_is("holder", "Running")
    await env.device_is(FIRST, lambda device: device.status.used_by)
    impatient = await gpu(env, "reassign", FIRST, "--to", "inference", "--timeout", "1s")
    assert (impatient.code, "waits for default/holder" in impatient.output) == (PARTLY, True), impatient
    await env.device_is(FIRST, lambda device: device.status.state is DeviceState.DRAINING)
    await env.end_pod("holder")
    moved = await gpu(env, "reassign", FIRST, "--to", "inference")
    assert (moved.code, "in the pool inference" in moved.output) == (DONE, True), moved
    await env.pool_is("inference", lambda pool: units_of(pool).available == 3)


async def retire_and_take_back(env: FlowEnv) -> None:
    """Retired, a card is safe to pull; taken back, it is where it was; revoked with a hold, it stays out."""
    retired = await gpu(env, "retire", FIRST, "--wait", "--reason", "RMA 4711")
    assert (retired.code, "safe to pull" in retired.output) == (DONE, True), retired
    latest = (await env.devices())[FIRST].status.history[0]
    why = "the ignore label takes the card out of service: RMA 4711"
    assert (latest.what, latest.why) == ("Released from inference", why)
    assert (await gpu(env, "retire", FIRST, "--undo", "--wait")).code == DONE
    assert pool_of((await env.devices())[FIRST]) == "inference"
    assert (await gpu(env, "revoke", FIRST, "--hold", "--wait")).code == DONE
    held = (await env.devices())[FIRST]
    assert (pool_of(held), Annotation.HOLD in held.metadata.annotations) == (None, True)
    assert (await gpu(env, "hold", FIRST, "--release")).code == DONE
    assert (await gpu(env, "clear-fault", FIRST)).code == FAILED


async def try_without_rights(env: FlowEnv, folder: Path) -> None:
    """Who may not read the fleet is told what is missing; who may read and not write, what the API server says."""
    async with tenant(env.client, env.cluster.kubeconfig, folder) as somebody:
        refused = await gpu(env, "approve", FIRST, "--pool", "inference", kubeconfig=somebody.kubeconfig)
        assert refused.code == FAILED, refused
        assert "what this leads to cannot be told" in refused.errors
    await allow_reading(env, "auditor")
    reader = ("--as", "auditor")
    assert (await gpu(env, "approve", FIRST, "--pool", "inference", "--dry-run", *reader)).code == DONE
    refused = await gpu(env, "approve", FIRST, "--pool", "inference", *reader)
    assert refused.code == FAILED, refused
    assert 'User "auditor" cannot patch resource "gpudevices"' in refused.errors
    unchecked = folder / "unchecked.yaml"
    unchecked.write_text(pool_file("spare"))
    assert (await gpu(env, "preview", "-f", str(unchecked), *reader)).code == PARTLY


async def allow_reading(env: FlowEnv, user: str) -> None:
    rules = [
        {"apiGroups": ["gpu.deckhouse.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    ]
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    await env.client.create(ClusterRole, {"metadata": {"name": user}, "rules": rules})
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": user}
    await env.client.create(ClusterRoleBinding, {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]})


async def overtaken_plans_write_nothing(env: FlowEnv) -> None:
    """A card that has changed since it was read is left alone; readings of its agent are no change."""
    plan = plan_approve(await read_fleet(env.client), [FIRST, SECOND], "inference")
    await env.client.patch(GPUDevice, FIRST, {"metadata": {"labels": {Label.IGNORE: "true"}}})
    telemetry = {"status": {"telemetry": {"temperature": 61, "at": "2026-03-02T12:00:00Z"}}}
    await env.client.patch(GPUDevice, SECOND, telemetry, subresource="status")
    outcomes = {outcome.name: outcome for outcome in await carry_out(env.client, plan)}
    assert (outcomes[FIRST].done, outcomes[SECOND].done) == (False, True)
    assert "changed meanwhile" in (outcomes[FIRST].sentence or "")
    assert Annotation.ASSIGNMENT not in (await env.devices())[FIRST].metadata.annotations
    await env.pool_is("inference", lambda pool: units_of(pool).available == 3)


async def preview_and_maintain(env: FlowEnv, folder: Path) -> None:
    """What a preview says of a change comes true; meanwhile the command tells how far it is, and can take it back."""
    await env.start_pod("holder", "inference")
    await env.pod_is("holder", "Running")
    await env.pool_is("inference", lambda pool: units_of(pool).used == 1)
    file = folder / "pool.yaml"

    # What would be refused: by the API server's schema, and by another pool with the same resource.
    for content, sentence in (
        (pool_file("slices", alocation={}), "alocation"),
        (pool_file("other", resource={"name": "gpu.deckhouse.io/inference"}), "the older pool inference has the same"),
    ):
        file.write_text(content)
        refused = await gpu(env, "preview", "-f", str(file))
        assert (refused.code, sentence in refused.output) == (FINDINGS, True), refused

    # A change of the allocation: units, the pod in the way, a quota that is exceeded, access that ends.
    sliced: dict[str, object] = {
        "allocation": {"mode": "TimeSlice", "timeSlice": {"replicas": 3}},
        "access": {"namespaces": ["default"]},
    }
    file.write_text(pool_file("inference", **sliced, quotas=[{"namespace": "default", "units": 0}]))
    shown = await gpu(env, "preview", "-f", str(file))
    assert shown.code == DONE, shown
    for words in (
        "inference: units 3 → 9 (gpu.deckhouse.io/inference)",
        "maintenance: Exclusive → TimeSlice 3, strategy Pool; no new pod gets a card until it is done",
        "waits for default/holder",
        "quota of default for gpu.deckhouse.io/inference: no limit → 0, holds 1: these go on",
        "access + namespace default",
        "access - every namespace",
    ):
        assert words in shown.output, (words, shown.output)
    document = (await gpu(env, "preview", "-f", str(file), "-o", "json")).document["items"][0]
    assert [each["pod"] for each in document["maintenance"]["inTheWay"]] == ["default/holder"]

    # It begins, and is taken back.
    await env.client.patch(GPUPool, "inference", {"spec": sliced})
    await env.pool_is("inference", lambda pool: pool.status.maintenance)
    told = await gpu(env, "maintenance", "inference")
    assert (told.code, "waits for default/holder" in told.output) == (DONE, True), told
    assert (await gpu(env, "maintenance", "inference", "--confirm-layout")).code == FAILED
    reverted = await gpu(env, "maintenance", "inference", "--revert", "--strategy", "Node")
    assert reverted.code == DONE, reverted
    await env.pool_is("inference", lambda pool: not pool.status.maintenance and units_of(pool).total == 3)
    assert "none is under way" in (await gpu(env, "maintenance", "inference")).output
    assert (await gpu(env, "maintenance", "inferenec")).code == ABSENT

    # And carried out, it leads to the units that were foretold.
    await env.end_pod("holder")
    await env.client.patch(GPUPool, "inference", {"spec": sliced})
    await env.pool_is("inference", lambda pool: units_of(pool).available == 9)
