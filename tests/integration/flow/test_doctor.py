"""`kubectl gpu doctor` on a running cluster: silent while it is healthy, and every fault that is put in is found by the
check that is for it, and by none any more once it is mended."""

import asyncio
import functools
import io
import sys
import tarfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gpu_control_plane import DEFAULT_NAMESPACE as NAMESPACE
from gpu_control_plane.agent.fleet.machines import edit_card
from gpu_control_plane.agent.simulated.machine import break_memory, heal
from gpu_control_plane.api import DEFINITIONS, GPUDevice, GPUNodeState, GPUPool
from gpu_control_plane.api.names import Annotation, Label
from gpu_control_plane.api.namespace import Namespace
from gpu_control_plane.api.nvidia import ClusterPolicy
from gpu_control_plane.api.nvidia.names import LEASE as NVIDIA_LEASE
from gpu_control_plane.api.nvidia.names import NodeLabel
from gpu_control_plane.doctor.check import Check
from gpu_control_plane.doctor.checks import CHECKS
from gpu_control_plane.doctor.cluster import examine_cluster
from gpu_control_plane.doctor.kinds import CheckedNode, PolicyBinding
from gpu_control_plane.kube.ca_bundle import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from gpu_control_plane.kube.client import Selection
from gpu_control_plane.kube.crd import CustomResourceDefinition
from gpu_control_plane.kube.errors import Forbidden
from gpu_control_plane.kube.events import Event
from gpu_control_plane.kube.lease_watch import TimedLease
from gpu_control_plane.kube.replicas import Deployment
from gpu_control_plane.kube.times import micro_time, utc_now
from gpu_control_plane.operator.views import DaemonSet
from gpu_control_plane.pools.access import IndexConfigMap
from gpu_control_plane.pools.explanation_reads import ReplicaSet
from gpu_control_plane.rules.access_index import INDEX_NAME
from gpu_control_plane.rules.access_policy import POD_ACCESS, WORKLOAD_ACCESS
from gpu_control_plane.rules.webhook_configuration import NAME as WEBHOOKS
from gpu_control_plane.usage.hours import By
from gpu_control_plane.usage.prometheus import find_prometheus
from gpu_control_plane.usage.reading import usage_now
from integration.flow.env import FlowEnv, pool_of, units_of
from integration.kinds import ConfigMap, Pod, configmap
from integration.rbac import ServiceAccount
from integration.tenant import tenant
from waiting import until_async

FIRST, SECOND, NEW = "node-a-0000-18-00-0", "node-a-0000-2a-00-0", "node-c-0000-18-00-0"
LEASE = "gpu-control-plane"
BY_NFD = "feature.node.kubernetes.io/pci-10de.present"
CONTROLLER, AGENTS = "gpu-control-plane-controller", "gpu-control-plane-agent"
UNKEPT = "node-x"
"""A node that nobody simulates: pods there stay as they are."""
SECTIONS = (
    *("operator", "driver", "toolkit", "devicePlugin", "dcgmExporter", "dcgm", "gfd"),
    *("nodeStatusExporter", "daemonsets"),
)
"""What a ClusterPolicy has to have."""
PLANTED = ("planted-in-env-1a2b", "planted-in-args-3c4d", "planted-in-annotation-5e6f", "planted-in-message-7a8b")
"""Secrets as people leave them around."""


async def short_pause(_seconds: float) -> None:
    """What settles here settles soon, and a finding that does not is looked for again."""
    await asyncio.sleep(0.5)


async def findings(env: FlowEnv, checks: Sequence[Check] = CHECKS, ahead: timedelta = timedelta()) -> dict[str, str]:
    """What is found, by check, with the object; `ahead` is how far the clock of the doctor is ahead."""

    def now() -> datetime:
        return utc_now() + ahead

    examined = (await examine_cluster(env.client, NAMESPACE, checks, now=now, sleep=short_pause)).examination
    assert examined.not_made == ()
    return {finding.check: f"{finding.about}: {finding.sentence}" for finding in examined.findings}


async def found(env: FlowEnv, *expected: str) -> None:
    """Every one of these faults is found, and no other."""
    last: dict[str, str] = {}

    async def holds() -> bool:
        nonlocal last
        last = await findings(env)
        return last.keys() == set(expected)

    try:
        await until_async(holds, within=60)
    except AssertionError:
        missing, more = set(expected) - last.keys(), {key: last[key] for key in last.keys() - set(expected)}
        raise AssertionError(f"not found: {sorted(missing)}; found beside: {more}") from None


async def doctor(kubeconfig: Path, *options: str) -> tuple[int, str]:
    """The command as people run it: its exit code and its output."""
    command = ("-m", "gpu_control_plane.cli", "doctor", "--kubeconfig", str(kubeconfig), *options)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (output or errors).decode()


def container(resource: str) -> dict[str, object]:
    return {"name": "main", "image": "any", "resources": {"limits": {resource: "1"}}}


async def test_every_fault_is_found_and_a_healthy_cluster_is_silent(env: FlowEnv, tmp_path: Path) -> None:
    await env.start_controller_with_webhooks()
    await found(env, "no-gpu-node")
    await env.add_nodes("node-a", "node-b")
    await env.devices_known(4)
    await env.add_pool("training", assignment={"requireAnnotation": False})
    await env.pool_is("training", lambda pool: units_of(pool).available == 4)
    await found(env)
    code, text = await doctor(env.cluster.kubeconfig)
    assert (code, text.splitlines()) == (0, [f"nothing found, {len(CHECKS)} checks made"])

    await faults_of_policies(env)
    await faults_of_cards_and_pools(env)
    await faults_of_pods_and_nodes(env)
    await faults_that_only_time_shows(env)
    await partial_rights(env, tmp_path)
    await faults_while_our_programs_are_down(env, tmp_path)


async def faults_of_policies(env: FlowEnv) -> None:
    client = env.client
    await client.delete(PolicyBinding, POD_ACCESS)
    await client.patch(PolicyBinding, WORKLOAD_ACCESS, {"spec": {"validationActions": ["Audit"]}})
    await env.add_pool("brief")
    await env.start_pod("lost", "brief")
    await client.delete(GPUPool, "brief")
    crd = DEFINITIONS[0].name
    await client.patch(CustomResourceDefinition, crd, {"metadata": {"annotations": {Annotation.CRD_VERSION: "0.0.1"}}})
    await found(env, "policy-missing", "pool-unguarded", "policy-not-enforced", "pod-unknown-resource", "crd-version")

    # The safe fix restores the policy; the rest is for people.
    code, text = await doctor(env.cluster.kubeconfig, "--only", "policy-missing", "--fix", "--yes")
    assert code == 0, text
    assert f"ValidatingAdmissionPolicyBinding {POD_ACCESS}" in text
    await client.patch(PolicyBinding, WORKLOAD_ACCESS, {"spec": {"validationActions": ["Warn"]}})
    release = {"metadata": {"annotations": {Annotation.CRD_VERSION: "0.1.0"}}}
    await client.patch(CustomResourceDefinition, crd, release)
    await env.end_pod("lost")
    await found(env)


async def faults_of_cards_and_pools(env: FlowEnv) -> None:
    client = env.client
    await env.start_pod("holder", "training")
    await env.pod_is("holder", "Running")
    cards = await env.devices()

    async def held() -> GPUDevice | None:
        return next((card for card in (await env.devices()).values() if card.status.used_by), None)

    await until_async(held, saying="the agent tells who holds a card")
    in_use = await held()
    assert in_use is not None
    await usage_without_prometheus(env)
    broken, mistaken, _ = (name for name in sorted(cards) if name != in_use.name)
    await edit_card(client, broken, break_memory)
    await env.approve(mistaken, "trainnig")
    await client.patch(GPUDevice, in_use.name, {"metadata": {"labels": {Label.IGNORE: "true"}}})
    await env.add_pool("nothing", deviceSelector={"include": {"products": ["NVIDIA B200"]}})
    await client.create(GPUPool, {"metadata": {"name": "closed"}, "spec": {}})
    limits = [{"namespace": "default", "units": 64}, {"namespace": "nowhere", "units": 1}]
    await client.patch(GPUPool, "training", {"spec": {"quotas": limits}})
    guard = await client.get(ValidatingWebhookConfiguration, WEBHOOKS)
    await client.delete(ValidatingWebhookConfiguration, WEBHOOKS)
    await until_async(functools.partial(made, env, "twin", "gpu.deckhouse.io/training"), saying="no webhook refuses it")
    await found(
        env,
        "webhook-missing",
        "card-faulted",
        "request-not-followed",
        "card-ignored-in-use",
        "pool-selects-nothing",
        "pool-nobody-admitted",
        "pool-quota-too-high",
        "pool-quota-without-namespace",
        "pool-name-collision",
    )

    body = {"metadata": {"name": WEBHOOKS}, "webhooks": list(guard.webhooks)}
    await client.create(ValidatingWebhookConfiguration, body)
    for pool in ("nothing", "closed", "twin"):
        await client.delete(GPUPool, pool)
    await client.patch(GPUPool, "training", {"spec": {"quotas": None}})
    await client.patch(GPUDevice, in_use.name, {"metadata": {"labels": {Label.IGNORE: None}}})
    await env.approve(mistaken, None)
    await edit_card(client, broken, heal)
    await env.end_pod("holder")
    await found(env)


async def usage_without_prometheus(env: FlowEnv) -> None:
    """What is held now is known, since when, and by what; what it was used for is not."""
    used = await usage_now(env.client, By.OWNER, timedelta(hours=1), utc_now() + timedelta(minutes=6))
    (row,) = used.rows
    assert (row.key, row.used, row.waste, used.covered) == ("default/Pod/holder", None, None, None)
    assert 0.1 <= row.held < 1
    assert "1 card is held now" in " ".join(used.notes)
    assert await find_prometheus(env.client) is None


async def made(env: FlowEnv, pool: str, resource: str) -> bool:
    """Whether a pool could be made that the webhook would refuse: the API server forgets it a moment later."""
    try:
        await env.add_pool(pool, resource={"name": resource})
    except Forbidden:
        return False
    return True


async def faults_of_pods_and_nodes(env: FlowEnv) -> None:
    client = env.client
    await client.patch(GPUPool, "training", {"spec": {"quotas": [{"namespace": "default", "units": 0}]}})
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container("gpu.deckhouse.io/training")]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}

    async def limited() -> bool:
        said = (await env.pool("training")).status.conditions
        return any(each.type == "QuotasHold" and each.reason == "QuotasHold" for each in said)

    await until_async(limited, saying="the quota is written")
    await client.create(ReplicaSet, {"metadata": {"name": "train"}, "spec": spec}, "default")
    await client.create(Namespace, {"metadata": {"name": "gpu-operator"}})
    now = micro_time(utc_now())
    held = {"holderIdentity": "nvidia", "leaseDurationSeconds": 60, "renewTime": now, "acquireTime": now}
    await client.create(TimedLease, {"metadata": {"name": NVIDIA_LEASE}, "spec": held}, "gpu-operator")
    await client.create(Namespace, {"metadata": {"name": "team-a"}})
    await until_async(functools.partial(has_account, env, "team-a"), saying="team-a takes pods")
    maker = await client.create(ConfigMap, configmap("maker"), "team-a")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "maker", "uid": maker.metadata.uid, "controller": True}
    failed = {"containers": [container("gpu.deckhouse.io/training")], "nodeName": "node-b"}
    meta = {"name": "failed", "ownerReferences": [owner]}
    await client.create(Pod, {"metadata": meta, "spec": failed}, "team-a")
    reason = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}
    await client.patch(Pod, "failed", {"status": reason}, namespace="team-a", subresource="status")
    labels = {BY_NFD: None, "gpu.deckhouse.io/driver.name": "nouveau", NodeLabel.UPGRADE_STATE.value: "upgrade-failed"}
    await client.patch(CheckedNode, "node-a", {"metadata": {"labels": labels}, "spec": {"unschedulable": True}})
    await found(
        env,
        "pod-refused",
        "pod-admission-error",
        "nvidia-operator-active",
        "node-unlabelled",
        "nouveau-loaded",
        "node-unusable",
        "driver-upgrade-failed",
    )

    code, text = await doctor(env.cluster.kubeconfig, "--only", "pod-*", "--only", "node-unl*", "--fix", "--yes")
    assert code == 4, text  # the quota is for a person to decide
    assert "kubectl edit gpupool training" in text
    node = await client.get(CheckedNode, "node-a")
    assert node.metadata.labels[Label.GPU_PRESENT] == "true"
    labels = {"gpu.deckhouse.io/driver.name": None, NodeLabel.UPGRADE_STATE.value: None}
    await client.patch(CheckedNode, "node-a", {"metadata": {"labels": labels}, "spec": {"unschedulable": None}})
    await client.delete(TimedLease, NVIDIA_LEASE, "gpu-operator")
    await client.delete(ReplicaSet, "train", "default")
    await client.patch(GPUPool, "training", {"spec": {"quotas": None}})
    await delete_events(env)
    await found(env)


async def has_account(env: FlowEnv, namespace: str) -> bool:
    return bool(await env.client.list(ServiceAccount, Selection(namespace, fields="metadata.name=default")))


async def delete_events(env: FlowEnv) -> None:
    """What was refused stays in Events until they expire."""
    for event in await env.client.list(Event, Selection(fields="reason=FailedCreate")):
        await env.client.delete(Event, event.name, event.metadata.namespace)


async def faults_that_only_time_shows(env: FlowEnv) -> None:
    """The doctor's clock is ahead, instead of the cluster's behind."""
    waiting = [check for check in CHECKS if check.id == "pod-waiting"]
    forgotten = [check for check in CHECKS if check.id == "card-awaits-approval"]
    picky = {"containers": [container("gpu.deckhouse.io/training")], "nodeSelector": {"disk": "ssd"}}
    await env.client.create(Pod, {"metadata": {"name": "picky"}, "spec": picky}, "default")
    assert await findings(env, waiting) == {}
    late = await findings(env, waiting, timedelta(minutes=20))
    assert "default/picky" in late["pod-waiting"]
    assert "disk=ssd" in late["pod-waiting"]
    await env.end_pod("picky")
    assert await findings(env, waiting, timedelta(minutes=20)) == {}

    await env.client.patch(GPUPool, "training", {"spec": {"assignment": {"requireAnnotation": True}}})
    await env.add_nodes("node-c", cards=1)
    await env.devices_known(5)
    await env.device_is(NEW, lambda device: device.status.pending_reason == "AwaitingApproval")
    assert "2 days" in (await findings(env, forgotten, timedelta(days=2)))["card-awaits-approval"]
    await env.client.patch(GPUPool, "training", {"spec": {"assignment": {"requireAnnotation": False}}})
    await env.device_is(NEW, lambda device: pool_of(device) == "training")
    assert await findings(env, forgotten, timedelta(days=2)) == {}
    await found(env)


async def partial_rights(env: FlowEnv, folder: Path) -> None:
    """Somebody who may see little is told what was not checked, and not that all is well."""
    async with tenant(env.client, env.cluster.kubeconfig, folder) as somebody:
        code, text = await doctor(somebody.kubeconfig, "-o", "json")
        answer = msgspec.json.decode(text)
        assert (code, answer["findings"], answer["made"]) == (5, [], 0)
        assert len(answer["notMade"]) == len(CHECKS)
        assert "you may not read the GPUPools" in {each["why"] for each in answer["notMade"]}
        used = await usage_now(somebody.client, By.POOL, timedelta(hours=1), utc_now())
        assert (used.rows, used.complete) == ([], False)
        assert any("gpudevices" in note for note in used.notes)


async def faults_while_our_programs_are_down(env: FlowEnv, folder: Path) -> None:
    """What controllers and agents would mend at once shows while they are away; then a test writes what they would."""
    client = env.client
    env.kill_controller()
    await env.controller_ended()
    await env.stop_fleet()
    long_ago = micro_time(utc_now() - timedelta(minutes=5))
    await client.patch(TimedLease, LEASE, {"spec": {"renewTime": long_ago}}, namespace=NAMESPACE)
    await without_bundle(env)
    access = {"namespaceSelector": None, "namespaces": ["team-a"]}
    await client.patch(GPUPool, "training", {"spec": {"access": access}})
    await client.patch(GPUNodeState, "node-b", {"spec": {"assignments": None}})
    capacity = {"capacity": {"gpu.deckhouse.io/training": "0"}}
    await client.patch(CheckedNode, "node-a", {"status": capacity}, subresource="status")
    await deploy_programs(env)
    await found(
        env,
        "controller-no-leader",
        "controller-unavailable",
        "webhook-untrusted",
        "access-index-stale",
        "pool-not-observed",
        "order-not-answered",
        "resource-not-listed",
        "agent-missing",
        "agent-not-ready",
        "program-not-running",
    )

    await client.delete(IndexConfigMap, INDEX_NAME, NAMESPACE)
    await write_conditions(env)
    await client.create(ClusterPolicy, {"metadata": {"name": "policy"}, "spec": {section: {} for section in SECTIONS}})
    broken = {"name": "state-driver", "state": "notReady", "desired": 2, "ready": 1, "message": "a pod crashes"}
    stack = {"state": "notReady", "namespace": NAMESPACE, "states": [broken]}
    await client.patch(ClusterPolicy, "policy", {"status": stack}, subresource="status")
    await client.delete(Deployment, CONTROLLER, NAMESPACE)
    expected = {
        "controller-missing",
        "access-index-missing",
        "driver-missing",
        "toolkit-missing",
        "monitoring-missing",
        "inventory-incomplete",
        "conflicting-plugin",
        "validation-failed",
        "order-refused",
        "pool-misconfigured",
        "pool-maintenance-overdue",
        "card-not-probed",
        "stack-not-ready",
        "runtime-class-missing",
    }

    async def all_found() -> bool:
        return expected <= (await findings(env, ahead=timedelta(minutes=2))).keys()

    await until_async(all_found, saying="every condition is passed on")
    code, text = await doctor(env.cluster.kubeconfig, "--bundle", str(folder / "support.tar.gz"))
    assert code == 4
    assert "conflicting-plugin (critical): Another device plugin serves" in text
    assert "fix: kubectl " in text
    assert all(len(line) <= 110 or "fix:" in line or "seen:" in line for line in text.splitlines())
    assert_bundle(folder / "support.tar.gz")

    # Programs that come back mend what is theirs.
    await client.patch(GPUPool, "training", {"status": {"conditions": []}}, subresource="status")
    await client.patch(GPUNodeState, "node-a", {"status": {"validation": None}}, subresource="status")
    await client.delete(ClusterPolicy, "policy")
    await client.delete(DaemonSet, AGENTS, NAMESPACE)
    await client.delete(CheckedNode, UNKEPT)
    for pod in ("agent-a", "exporter"):
        await client.delete(Pod, pod, NAMESPACE)
    await client.patch(GPUPool, "training", {"spec": {"access": {"namespaceSelector": {}, "namespaces": None}}})
    await client.delete(ValidatingWebhookConfiguration, WEBHOOKS)
    await client.delete(MutatingWebhookConfiguration, WEBHOOKS)
    await env.start_fleet()
    await env.start_controller_with_webhooks()
    await found(env)


async def without_bundle(env: FlowEnv) -> None:
    held = await env.client.get(MutatingWebhookConfiguration, WEBHOOKS)
    webhooks = [{**each, "clientConfig": {"url": "https://127.0.0.1:1/"}} for each in held.webhooks]
    await env.client.patch(MutatingWebhookConfiguration, WEBHOOKS, {"webhooks": webhooks})


async def deploy_programs(env: FlowEnv) -> None:
    """Our programs as the chart has them, with nobody who runs them: an agent that crashes on one node, none on the
    other, a controller without pods, an exporter whose image cannot be pulled."""
    client = env.client
    labels = {"app.kubernetes.io/name": "gpu-control-plane"}

    def workload(name: str, **spec: object) -> dict[str, object]:
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "any"}]}}
        selector = {"matchLabels": {"app": name}}
        return {"metadata": {"name": name}, "spec": {"selector": selector, "template": template, **spec}}

    def pod(name: str, component: str, node: str) -> dict[str, object]:
        meta = {"name": name, "labels": {**labels, "app.kubernetes.io/component": component}}
        secret = {"name": "TOKEN", "value": PLANTED[0]}
        main = {"name": "main", "image": "any", "env": [secret], "args": [f"--password={PLANTED[1]}"]}
        note = {"example.com/settings": PLANTED[2]}
        return {
            "metadata": {**meta, "annotations": note},
            "spec": {"nodeName": node, "containers": [main], "terminationGracePeriodSeconds": 0},
        }

    await until_async(functools.partial(has_account, env, NAMESPACE), saying="our namespace takes pods")
    await client.create(Deployment, workload(CONTROLLER, replicas=2, paused=True), NAMESPACE)
    await client.create(DaemonSet, workload(AGENTS), NAMESPACE)
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": f"Bearer {PLANTED[3]} was refused"}}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [
            {"name": "main", "ready": False, "image": "any", "imageID": "", "restartCount": 3, "state": waiting}
        ],
    }
    await client.create(CheckedNode, {"metadata": {"name": UNKEPT}})
    for name, component in (("agent-a", "agent"), ("exporter", "dcgm-exporter")):
        await client.create(Pod, pod(name, component, UNKEPT), NAMESPACE)
        await client.patch(Pod, name, {"status": status}, namespace=NAMESPACE, subresource="status")


async def write_conditions(env: FlowEnv) -> None:
    """What the controllers would say of node-a, of a pool and of a card."""
    client = env.client
    state = await client.get(GPUNodeState, "node-a")
    message = "Another device plugin serves cards of this node: nvidia.com/gpu. Remove it from the node."
    said = {
        "DriverMissing": ("True", "DriverNotFound", ""),
        "ToolkitMissing": ("True", "ToolkitNotFound", ""),
        "MonitoringMissing": ("True", "MonitoringNotFound", ""),
        "InventoryComplete": ("False", "CardsMissing", ""),
        "Degraded": ("True", "ConflictingDevicePlugin", message),
    }
    plugin = msgspec.to_builtins(state.status.plugin)
    plugin["problems"] = [{"inventoryID": FIRST, "reason": "Failed", "message": "the driver refused"}]
    steps = [{"name": "cuda", "result": "Failed", "message": "no kernel image"}]
    status = {"conditions": conditions(said), "plugin": plugin, "validation": {"steps": steps}}
    await client.patch(GPUNodeState, "node-a", {"status": status}, subresource="status")
    pool = {
        "Configured": ("False", "OrderRefused", ""),
        "InMaintenance": ("True", "MaintenanceOverdue", ""),
    }
    await client.patch(GPUPool, "training", {"status": {"conditions": conditions(pool)}}, subresource="status")
    await client.patch(GPUDevice, SECOND, {"status": {"conditions": []}}, subresource="status")


def conditions(said: dict[str, tuple[str, str, str]]) -> list[dict[str, str]]:
    now = utc_now().replace(microsecond=0).isoformat().replace("+00:00", "Z")
    return [
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
        for kind, (status, reason, message) in said.items()
    ]


def assert_bundle(path: Path) -> None:
    """It has what is needed, and nothing of what was planted."""
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        content = {name.removeprefix("gpu-support/"): file.read() for name, file in files.items() if file is not None}
    assert {"doctor.json", "versions.json", "notes.txt"} <= content.keys()
    kinds = {name.partition("/")[2] for name in content if name.startswith("objects/")}
    assert {"gpudevices.gpu.deckhouse.io.json", "gpupools.gpu.deckhouse.io.json", "nodes.json", "pods.json"} <= kinds
    assert not any("secret" in name or "configmap" in name for name in kinds)
    everything = b"".join(content.values()).decode()
    assert [word for word in PLANTED if word in everything] == []
    for forbidden in ("managedFields", "last-applied-configuration"):
        assert forbidden not in everything
    assert '"name": "TOKEN"' in everything  # that it is set is told, its value is not
